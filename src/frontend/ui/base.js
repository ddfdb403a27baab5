"use strict";
const $ = id => document.getElementById(id);
const number = value => Number(value ?? 0);  // JSON has 64-bit integers as strings, and no zeros
const count = value => number(value).toLocaleString("en");
const percent = (part, whole) => whole > 0 ? Math.round(100 * part / whole) + " %" : "–";
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const milliseconds = us => us >= 1e7 ? (us / 1e6).toFixed(1) + " s" : (us / 1e3).toFixed(1) + " ms";

function make(tag, text, className) {
  const element = document.createElement(tag);
  element.textContent = text ?? "";
  if (className) element.className = className;
  return element;
}

// Writes only changed values, so that the page keeps the reader's selection.
function write(element, text, className) {
  if (element.textContent !== text) element.textContent = text;
  if (className !== undefined && element.className !== className) element.className = className;
}

// Gives `parent` this number of children. The others keep the focus and the reader's selection.
function fit(parent, count, child) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(child());
  return [...parent.children];
}

// Makes one row for each item. `fill` receives the row's cells.
function rows(body, items, columns, fill) {
  const fresh = () => {
    const row = make("tr");
    row.append(...columns.map(className => make("td", "", className)));
    return row;
  };
  fit(body, items.length, fresh).forEach((row, i) => fill(items[i], row.cells));
}

// The drawing surface of a canvas, in CSS pixels.
function surface(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixels[0]) canvas.width = pixels[0];
  if (canvas.height !== pixels[1]) canvas.height = pixels[1];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
