"use strict";
// The page of a run that goes on: it loads itself again unless its reader pauses it, and keeps what
// the reader opened. Once nobody rewrites the file any more, it says so and stops.

(() => {
  const live = document.getElementById("live");
  const pause = document.getElementById("pause");
  const text = document.getElementById("live-text");
  const key = `dance-flwr ${location.pathname}`;
  const folds = () => [...document.querySelectorAll("details[id]")];
  let timer = 0;

  /** Return what this tab kept, or nothing where the browser keeps nothing for files. */
  function recall() {
    try {
      return JSON.parse(sessionStorage.getItem(key)) ?? {};
    } catch {
      return {};
    }
  }

  function keep() {
    const open = folds().filter((fold) => fold.open).map((fold) => fold.id);
    const paused = pause.getAttribute("aria-pressed") === "true";
    try {
      sessionStorage.setItem(key, JSON.stringify({ open, paused }));
    } catch {
      // Then the next load starts with everything folded.
    }
  }

  function wait() {
    clearTimeout(timer);
    if (pause.getAttribute("aria-pressed") === "true") return;
    if (Date.now() > Number(live.dataset.staleAt)) {
      text.textContent = "Nobody writes this page any more: dance-flwr report RUN --html --live goes on.";
      return;
    }
    timer = setTimeout(() => {
      keep();
      location.reload();
    }, 1000 * Number(live.dataset.seconds));
  }

  const kept = recall();
  for (const fold of folds()) fold.open = (kept.open ?? []).includes(fold.id);
  pause.hidden = false;
  pause.setAttribute("aria-pressed", String(kept.paused ?? false));
  pause.addEventListener("click", () => {
    pause.setAttribute("aria-pressed", String(pause.getAttribute("aria-pressed") !== "true"));
    keep();
    wait();
  });
  addEventListener("pagehide", keep);
  wait();
})();
