// Runs before the first paint, so that a page in the dark does not flash in the light.
(function () {
  try {
    var chosen = localStorage.getItem("weft.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (_) {
    /* no storage: the system decides */
  }
})();
