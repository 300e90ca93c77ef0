// The offline page is nothing but the viewer, and the data stands in the page itself.
import { attentionView } from "./attention.js";

attentionView(document.getElementById("view"), JSON.parse(document.getElementById("data").textContent));
