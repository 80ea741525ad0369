// Replays a recording of a terminal: the text of the page's <pre>, whose parts say when they were printed.
// Pauses are cut to `data-idle` seconds. Nothing moves until somebody presses Play.
"use strict";
(function () {
  for (const root of document.querySelectorAll(".ladder-replay")) {
    const text = document.getElementById(root.dataset.text), idle = Number(root.dataset.idle);
    root.innerHTML = `<pre class="ladder-screen" aria-hidden="true" tabindex="-1"></pre><div class="controls"><button type="button">Play</button>
      <label class="place">Second <input type="range" min="0" step="0.1" aria-label="Place in the recording"></label>
      <label>Speed <select>${[1, 2, 4].map((n) => `<option value="${n}">${n}×</option>`).join("")}</select></label><span class="clock"></span></div>`;
    const [screen, button, slider, speed, clock] = ["pre", "button", "input", "select", ".clock"].map((name) => root.querySelector(name));
    screen.append(...[...text.querySelectorAll("[data-at]")].map((part) => part.cloneNode(true)));
    let last = Number(screen.firstChild.dataset.at), end = 0;
    const parts = [...screen.children].map((part) => {  // [when, in the replay; the part]
      end += Math.min(Number(part.dataset.at) - last, idle);
      last = Number(part.dataset.at);
      return [end, part];
    });
    let now = end, playing = 0;
    slider.max = end.toFixed(1);

    function show(at) {
      now = Math.min(at, end);
      for (const [when, part] of parts) part.hidden = when > now + 1e-6;
      slider.value = now;
      slider.setAttribute("aria-valuetext", `${now.toFixed(0)} of ${end.toFixed(0)} seconds`);
      clock.textContent = `${now.toFixed(0)} / ${end.toFixed(0)} s`;
      screen.scrollTop = screen.scrollHeight;
    }
    function stop() {
      cancelAnimationFrame(playing);
      playing = 0;
      button.textContent = "Play";
    }
    function play() {
      let before = performance.now();
      if (now >= end) show(0);
      button.textContent = "Pause";
      const tick = (time) => {
        show(now + (Math.max(0, time - before) / 1000) * Number(speed.value));
        before = time;
        if (now >= end) stop();
        else playing = requestAnimationFrame(tick);
      };
      playing = requestAnimationFrame(tick);
    }
    button.onclick = () => (playing ? stop() : play());
    slider.oninput = () => { stop(); show(Number(slider.value)); };
    root.hidden = false;
    show(end);
    screen.scrollTop = 0;
  }
})();
