// The offline attention page: the viewer with the data embedded in the page.
import { attentionView } from "./attention.js";

attentionView(document.getElementById("view"), JSON.parse(document.getElementById("data").textContent));
