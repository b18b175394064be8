"use strict";

// Frames: as high as the graph, up to what the style sheet gives them.
const fit = (frame) => {
  const graph = frame.contentDocument && frame.contentDocument.querySelector("svg");
  const height = graph ? graph.getBoundingClientRect().height : 0;
  if (height > 0) frame.style.maxHeight = Math.ceil(height) + "px";
};
document.querySelectorAll(".pane iframe").forEach((frame) => {
  fit(frame);
  frame.addEventListener("load", () => fit(frame));
});

// Tabs: a graph is loaded when it is first shown.
document.querySelectorAll(".tabs button").forEach((tab) => {
  tab.addEventListener("click", () => {
    document.querySelectorAll(".tabs button").forEach((other) => {
      other.setAttribute("aria-selected", String(other === tab));
      document.getElementById("pane-" + other.dataset.pane).hidden = other !== tab;
    });
    const frame = document.querySelector("#pane-" + tab.dataset.pane + " iframe");
    if (frame && frame.dataset.srcdoc) {
      frame.srcdoc = frame.dataset.srcdoc;
      delete frame.dataset.srcdoc;
    }
  });
});

// Tables: a click on a head sorts, a second one turns the order around.
document.querySelectorAll("table:not(.ages) th").forEach((head) => {
  head.addEventListener("click", () => {
    const column = head.cellIndex;
    const body = head.closest("table").tBodies[0];
    const down = head.dataset.down !== "true";
    head.dataset.down = String(down);
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
    };
    const rows = [...body.rows].sort((one, other) => {
      const a = key(one);
      const b = key(other);
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
      return down ? -order : order;
    });
    body.append(...rows);
  });
});
