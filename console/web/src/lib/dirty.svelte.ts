/** Whether something typed would be lost by loading the page anew. */
export const dirty = $state({ any: false });
