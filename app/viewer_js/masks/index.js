// Masks on the case page: the layer over the picture, the tools, and the segments column.

import "./masks.css";

export { MaskWorkspace } from "./workspace.js";
