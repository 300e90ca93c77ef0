import { libreTranslate } from "libretranslate-ts";

const [address, text] = process.argv.slice(2);
libreTranslate.setApiEndpoint(address);
const keyless = await libreTranslate.translate(text, "en", "de");
libreTranslate.setApiKey("none is needed");
const translated = await libreTranslate.translate(text, "en", "de");
const several = await libreTranslate.translate(text, "en", "de", 2);
const refused = await libreTranslate.translate(text, "en", "zz");
const detected = await libreTranslate.detect(text);
const languages = await libreTranslate.listLanguages();
console.log(JSON.stringify({ keyless, translated, several, refused, detected, languages }));
