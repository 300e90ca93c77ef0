import { Translate } from "translate";

const [address, text] = process.argv.slice(2);
const translate = Translate({ engine: "libre", url: `${address}/translate`, key: "none is needed" });
const there = await translate(text, { from: "en", to: "de" });
const back = await translate(there, { from: "German", to: "English" });
const refused = await translate(text, { from: "en", to: "fr" }).catch((error) => error.message);
console.log(JSON.stringify({ there, back, refused }));
