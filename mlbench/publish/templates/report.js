(() => {
  "use strict";
  const hint = document.getElementById("hint");
  const marks = ".plot svg [aria-roledescription][aria-label]:not([aria-roledescription=axis]):not([aria-roledescription=legend])";
  const show = (event) => {
    const mark = event.target instanceof Element ? event.target.closest(marks) : null;
    hint.hidden = mark === null;
    if (mark === null) return;
    hint.textContent = mark.getAttribute("aria-label");
    const left = Math.min(event.clientX + 14, window.innerWidth - hint.offsetWidth - 8);
    hint.style.left = `${Math.max(8, left)}px`;
    hint.style.top = `${Math.max(8, event.clientY - hint.offsetHeight - 12)}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((details) => { details.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
})();
