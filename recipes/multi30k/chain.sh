#!/bin/sh
# All of multi30k-en-de, from people's text to its score: two models that speak, side by side with a core each, what they
# say, and the model that hears it, with all cores. Says when each begins.
#
#   recipes/multi30k/chain.sh DIR RUNS            DIR holds Multi30k; RUNS and RUNS/text are made
#   FORM= recipes/multi30k/chain.sh DIR RUNS      the same on the text as people wrote it, with capitals
#   SEED=2 recipes/multi30k/chain.sh DIR RUNS     another seed, for all three models
#   SACCADE="python -m saccade"                   how saccade is called, if not by its name
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$1" && pwd)
runs=$2
form=${FORM-.lc.norm.tok}
saccade=${SACCADE:-saccade}
python=${PYTHON:-python}

say() { echo "$(date +%H:%M:%S) $*"; }

train() { # RECIPE NAME SOURCE TARGET and what else is set
    recipe=$1 name=$2 source=$3 target=$4
    shift 4
    $saccade train "$here/$recipe" --run "$runs/$name" --set data.folder="$folder" --set seed="${SEED:-1}" \
        --set data.dev.src="val$form.$source.gz" --set data.dev.tgt="val$form.$target.gz" \
        --set data.test.src="test_2016_flickr$form.$source.gz" --set data.test.tgt="test_2016_flickr$form.$target.gz" \
        "$@" >"$runs/$name.log" 2>&1
}

speaker() { # NAME SOURCE TARGET
    OMP_NUM_THREADS=1 train "multi30k/$1.toml" "$1" "$2" "$3" \
        --set data.train.src="train$form.$2.gz" --set data.train.tgt="train$form.$3.gz"
}

mkdir -p "$runs"
runs=$(cd "$runs" && pwd)
say "two models learn to speak"
speaker forward en de &
forward=$!
speaker backward de en
wait $forward
say "they speak"
$python "$here/diversify.py" "$folder/train$form.en.gz" "$folder/train$form.de.gz" "$runs/text" \
    --forward "$runs/forward" --backward "$runs/backward" >"$runs/text.log" 2>&1
say "one model hears them"
train multi30k-en-de.toml multi30k-en-de en de \
    --set data.train.src="$runs/text/train.src" --set data.train.tgt="$runs/text/train.tgt"
say "done"
$saccade evaluate "$runs/multi30k-en-de"
