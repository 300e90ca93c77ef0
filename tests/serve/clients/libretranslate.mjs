import { translate } from "libretranslate";

const [apiurl, query] = process.argv.slice(2);
const translated = await translate({ query, source: "en", target: "de", apiurl });
const detected = await translate({ query, target: "de", apiurl, apiKey: "none is needed" });
const unknown = await translate({ query, source: "en", target: "zz", apiurl }).catch((error) => error.message);
console.log(JSON.stringify({ translated, detected, unknown }));
