(function () {
  "use strict";
  function id(name) { return document.getElementById(name); }
  var data = JSON.parse(id("data").textContent), rows = data.rows, steps = data.steps;
  var view = id("view"), svg = view.querySelector("svg"), panel = id("step"), tip = id("tip"), found = id("found"), find = id("find");
  var at = -1, chosen = -1, timer = 0;

  // -- what a step shows: its line of the table, and its boxes and edges -------------------------------------------------
  var lines = [], boxes = [], rowOf = new Map(), consumers = rows.map(function () { return []; }), ledger = rows.map(function () { return []; });
  document.querySelectorAll("[data-step]").forEach(function (e) { lines[+e.dataset.step] = e; });
  rows.forEach(function (r, i) {
    boxes[i] = r.box ? id(r.box) : null;
    if (boxes[i]) { rowOf.set(boxes[i], i); }
    new Set(r.inputs).forEach(function (k) { consumers[k].push(i); });
  });
  var edges = new Map();
  if (svg) {
    svg.querySelectorAll("g.edge").forEach(function (e) {
      var key = (e.classList.contains("adjoint") ? "r" : "f") + e.querySelector("title").textContent;
      if (!edges.has(key)) { edges.set(key, []); }
      edges.get(key).push(e);
    });
    svg.querySelectorAll("title").forEach(function (e) { e.remove(); });       // the page has its own tooltip
  }
  var used = new Map();
  var shown = steps.map(function (s, i) {
    var r = rows[s.row], own = [];
    if (s.pass === "forward") {
      if (boxes[s.row]) { own.push(boxes[s.row]); }
      new Set(r.inputs).forEach(function (k) {
        own = own.concat(edges.get("f" + rows[k].box + "->" + r.box) || []);
      });
    } else if (s.by >= 0) {
      ledger[s.row].push(i);
      var key = "r" + rows[s.by].box + "->" + r.box, all = edges.get(key) || [], n = used.get(key) || 0;
      used.set(key, n + 1);
      if (all.length) { own.push(all[Math.min(n, all.length - 1)]); }
    }
    return own;
  });
  shown.forEach(function (own, i) {
    own.forEach(function (e) { e.classList.add("wait"); });
    if (lines[i]) { lines[i].classList.add("wait"); }
  });

  function mark(i, wait) {
    shown[i].forEach(function (e) { e.classList.toggle("wait", wait); });
    if (lines[i]) { lines[i].classList.toggle("wait", wait); }
  }
  function light(i, on) {
    if (i < 0 || i >= steps.length) { return; }
    var s = steps[i];
    shown[i].forEach(function (e) { e.classList.toggle("now", on); });
    if (boxes[s.row]) { boxes[s.row].classList.toggle("now", on); }
    if (lines[i]) { lines[i].classList.toggle("now", on); }
  }

  // -- moving ------------------------------------------------------------------------------------------------------------
  function go(where) {
    where = Math.max(-1, Math.min(steps.length - 1, where));
    light(at, false);
    for (var i = at + 1; i <= where; i++) { mark(i, false); }
    for (i = at; i > where; i--) { mark(i, true); }
    at = where;
    light(at, true);
    id("where").value = at + 1;
    id("told").textContent = at < 0 ? "start, " + steps.length + " steps" : "step " + (at + 1) + " of " + steps.length + ", " + steps[at].pass;
    if (lines[at]) { scrollTo(lines[at]); }
    if (at >= 0) { follow(steps[at].row); }
    describe();
  }
  function scrollTo(line) {
    var side = id("side"), a = line.getBoundingClientRect(), b = side.getBoundingClientRect();
    if (side.scrollHeight <= side.clientHeight + 1) { return; }
    if (a.top < b.top + 30 || a.bottom > b.bottom - 10) { side.scrollTop += a.top - b.top - b.height / 2; }
  }
  function runTo(row) {
    for (var n = 1; n <= steps.length; n++) {
      var i = (at + n + (at < 0 ? steps.length : 0)) % steps.length;
      if (steps[i].row === row) { stop(); go(i); return; }
    }
  }
  function stop() { clearInterval(timer); timer = 0; id("play").textContent = "▶ play"; }
  function play() {
    if (timer) { stop(); return; }
    if (at >= steps.length - 1) { go(-1); }
    id("play").textContent = "⏸ pause";
    timer = setInterval(function () { if (at >= steps.length - 1) { stop(); } else { go(at + 1); } }, +id("speed").value);
  }

  // -- the panel ---------------------------------------------------------------------------------------------------------
  function make(tag, text, kind) {
    var e = document.createElement(tag);
    if (text !== undefined) { e.textContent = text; }
    if (kind) { e.className = kind; }
    return e;
  }
  function nameButton(row) {
    var b = make("button", rows[row].name, "name");
    b.addEventListener("click", function () { runTo(row); });
    return b;
  }
  function part(parent, head) {
    var box = make("div");
    box.append(make("h2", head));
    parent.append(box);
    return box;
  }
  function list(parent, head, items) {
    var ul = make("ul");
    items.forEach(function (parts) {
      var li = make("li");
      li.append.apply(li, parts);
      ul.append(li);
    });
    part(parent, head).append(ul);
    return ul;
  }
  function source(parent, r, head) {
    if (!r.site) { return; }
    var box = part(parent, head);
    box.className = "source";
    box.append(make("span", r.site + " "), make("code", r.source));
  }
  function math(texts) {
    var box = make("div", undefined, "math");
    texts.forEach(function (t, k) { box.append(k === texts.length - 1 ? make("div", "").appendChild(make("b", t)).parentNode : make("div", t)); });
    return box;
  }
  function describe() {
    panel.textContent = "";
    panel.className = at < 0 ? "" : steps[at].pass;
    var parts = make("div", undefined, "parts");
    if (at < 0) {
      panel.append(make("div", "Before the first step", "kicker"), math([data.title]), make("p", "→ or Space: forward, then back through the reverse pass. " +
        "Click a box for its source line, double click to run to it."));
    } else {
      var s = steps[at], r = rows[s.row], texts;
      if (s.pass === "forward") {
        panel.append(make("div", "forward: " + r.op + " " + r.spec, "kicker"));
        texts = [r.name + " = " + r.formula];
        if (r.filled && r.filled !== r.formula && r.filled !== r.value) { texts.push("= " + r.filled); }
        texts.push("= " + r.value);
        panel.append(math(texts));
        if (r.tangent) { panel.append(make("div", r.tangent, "tangent name")); }
        if (r.inputs.length) {
          list(parts, "inputs", r.inputs.map(function (k) { return [nameButton(k), " = " + rows[k].value + "  " + rows[k].spec]; }));
        }
        if (consumers[s.row].length) {
          list(parts, "goes to", consumers[s.row].slice(0, 12).map(function (k) { return [nameButton(k), " = " + rows[k].formula]; }));
        }
      } else if (s.by < 0) {
        panel.append(make("div", "reverse: the adjoint of the result starts the reverse pass", "kicker"),
          math([r.bar + " = ∂y/∂" + r.name, "= " + s.sum]));
      } else {
        panel.append(make("div", "reverse: " + rows[s.by].name + " (" + rows[s.by].op + ") gives to the adjoint of " + r.name, "kicker"));
        texts = [r.bar + " = " + (s.first ? "" : r.bar + " + ") + s.formula];
        if (s.filled !== s.sum && (s.filled !== s.formula || !s.first)) { texts.push("= " + (s.first ? "" : s.before + " + ") + s.filled); }
        texts.push("= " + s.sum);
        panel.append(math(texts));
        list(parts, "from", [[nameButton(s.by), " = " + rows[s.by].formula + ", " + rows[s.by].bar + " = " + rows[s.by].adjoint]]);
        var all = ledger[s.row];
        var ul = list(parts, "contributions to " + r.bar, all.slice(0, 200).map(function (i) {
          return [nameButton(steps[i].by), " gives " + steps[i].value + ", sum " + steps[i].sum];
        }));
        all.slice(0, 200).forEach(function (i, k) { if (i > at) { ul.children[k].className = "done"; } });
      }
      source(parts, s.pass === "forward" || s.by < 0 ? r : rows[s.by], "source line");
    }
    if (chosen >= 0 && (at < 0 || steps[at].row !== chosen)) {
      var c = rows[chosen], box = part(parts, "chosen"), run = make("button", "run to " + c.name);
      run.id = "run";
      run.addEventListener("click", function () { runTo(chosen); });
      box.id = "chosen";
      box.append(make("div", c.name + " = " + c.formula + " = " + c.value + "  " + c.spec, "name"),
        make("div", c.adjoint === null ? "no adjoint" : c.bar + " = " + c.adjoint, "name"), run);
      source(parts, c, "source line of " + c.name);
    }
    panel.append(parts);
  }

  // -- the picture: pan, zoom, hover, click ------------------------------------------------------------------------------
  var full = svg && svg.viewBox.baseVal && svg.viewBox.baseVal.width ? { x: svg.viewBox.baseVal.x, y: svg.viewBox.baseVal.y,
    w: svg.viewBox.baseVal.width, h: svg.viewBox.baseVal.height } : null;
  var win = null, world = null;
  // The picture moves by the transform of one group: a new viewBox would lay out every text again, 50 times slower at 2,000 nodes.
  if (full) {
    world = document.createElementNS(svg.namespaceURI, "g");
    while (svg.firstChild) { world.append(svg.firstChild); }
    svg.append(world);
    svg.removeAttribute("viewBox");
    window.addEventListener("resize", function () { look(win); });
  }
  function look(w) {
    win = w;
    var s = size(), k = 1 / unit();
    world.setAttribute("transform", "translate(" + (s.w / 2 - (w.x + w.w / 2) * k) + " " + (s.h / 2 - (w.y + w.h / 2) * k) + ") scale(" + k + ")");
    svg.dataset.look = [w.x, w.y, w.w, w.h].join(" ");
  }
  // A graph whose boxes would be smaller than a pixel is not shown whole, but as far as anything can be seen around the current node.
  var WIDEST = 8;
  function fit() {
    if (!full) { return; }
    var s = size();
    look({ x: full.x, y: full.y, w: full.w, h: full.h });
    if (unit() > WIDEST) {
      var row = at < 0 ? boxes.findIndex(function (b) { return b; }) : steps[at].row;
      if (row >= 0 && boxes[row]) { center(row, WIDEST); } else { look({ x: full.x, y: full.y, w: s.w * WIDEST, h: s.h * WIDEST }); }
    }
  }
  function size() { return { w: Math.max(1, view.clientWidth), h: Math.max(1, view.clientHeight) }; }
  function unit() { var s = size(); return Math.max(win.w / s.w, win.h / s.h); }       // picture units a pixel
  function zoom(factor, px, py) {
    if (!full) { return; }
    var s = size(), u = unit(), cx = win.x + win.w / 2 + (px - s.w / 2) * u, cy = win.y + win.h / 2 + (py - s.h / 2) * u;
    var v = Math.max(0.05, Math.min(Math.max(full.w / s.w, full.h / s.h, 1) * 1.5, WIDEST, u * factor));
    look({ x: cx - px * v, y: cy - py * v, w: s.w * v, h: s.h * v });
  }
  function pan(dx, dy) {
    var u = unit();
    look({ x: win.x - dx * u, y: win.y - dy * u, w: win.w, h: win.h });
  }
  function center(row, scale) {
    var b = boxes[row].getBBox(), s = size(), u = scale || Math.min(unit(), 1.1), root = svg.querySelector("g.graph");
    var m = root && root.transform.baseVal.consolidate(), dx = m ? m.matrix.e : 0, dy = m ? m.matrix.f : 0;
    look({ x: b.x + b.width / 2 + dx - s.w * u / 2, y: b.y + b.height / 2 + dy - s.h * u / 2, w: s.w * u, h: s.h * u });
  }
  function follow(row) {
    if (!full || !boxes[row]) { return; }
    var a = boxes[row].getBoundingClientRect(), b = view.getBoundingClientRect();
    if (a.left < b.left + 4 || a.right > b.right - 4 || a.top < b.top + 4 || a.bottom > b.bottom - 4) { center(row); }
  }
  function choose(row) {
    if (chosen >= 0 && boxes[chosen]) { boxes[chosen].classList.remove("chosen"); }
    chosen = row;
    if (row >= 0 && boxes[row]) { boxes[row].classList.add("chosen"); }
    describe();
  }
  function rowUnder(e) {
    var g = e.target.closest ? e.target.closest("g.node") : null;
    return g && rowOf.has(g) ? rowOf.get(g) : -1;
  }
  var grip = null;
  if (full) {
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    svg.addEventListener("pointerdown", function (e) { if (e.button === 0) { grip = { x: e.clientX, y: e.clientY, far: 0, row: rowUnder(e) }; } });
    window.addEventListener("pointermove", function (e) {
      if (!grip) { return; }
      pan(e.clientX - grip.x, e.clientY - grip.y);
      grip.far += Math.abs(e.clientX - grip.x) + Math.abs(e.clientY - grip.y);
      grip.x = e.clientX;
      grip.y = e.clientY;
      view.classList.toggle("drag", grip.far > 4);
    });
    window.addEventListener("pointerup", function () {
      if (grip && grip.far <= 4) { choose(grip.row); }
      grip = null;
      view.classList.remove("drag");
    });
    window.addEventListener("pointercancel", function () { grip = null; });
    svg.addEventListener("dblclick", function (e) { var r = rowUnder(e); if (r >= 0) { runTo(r); } });
    svg.addEventListener("wheel", function (e) {
      var b = view.getBoundingClientRect();
      zoom(Math.exp(Math.max(-0.5, Math.min(0.5, e.deltaY * 0.002))), e.clientX - b.left, e.clientY - b.top);
      e.preventDefault();
    }, { passive: false });
    svg.addEventListener("pointermove", function (e) {
      var r = grip && grip.far > 4 ? -1 : rowUnder(e);
      tip.hidden = r < 0;
      if (r < 0) { return; }
      tip.textContent = rows[r].name + " = " + rows[r].value + "\n" + rows[r].spec + (rows[r].adjoint === null ? "" : "\n" + rows[r].bar + " = " +
        rows[r].adjoint);
      tip.style.left = Math.min(e.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
      tip.style.top = Math.min(e.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
    });
    svg.addEventListener("pointerleave", function () { tip.hidden = true; });
    id("fit").addEventListener("click", fit);
    id("in").addEventListener("click", function () { var s = size(); zoom(0.7, s.w / 2, s.h / 2); });
    id("out").addEventListener("click", function () { var s = size(); zoom(1 / 0.7, s.w / 2, s.h / 2); });
  }

  // -- search ------------------------------------------------------------------------------------------------------------
  var hits = [];
  function search() {
    hits.forEach(function (k) { if (boxes[k]) { boxes[k].classList.remove("hit"); } });
    hits = [];
    found.textContent = "";
    var word = find.value.trim().toLowerCase();
    if (!word) { return; }
    rows.forEach(function (r, i) { if (r.name.toLowerCase() === word || r.own.toLowerCase() === word) { hits.push(i); } });
    rows.forEach(function (r, i) {
      if (hits.indexOf(i) < 0 && hits.length < 200 && (r.name + " " + r.own + " " + r.op + " " + r.formula).toLowerCase().indexOf(word) >= 0) { hits.push(i); }
    });
    hits.slice(0, 12).forEach(function (k) {
      var b = make("button", rows[k].name + " = " + rows[k].formula);
      b.addEventListener("click", function () { jump(k); });
      found.append(b);
    });
    if (!hits.length) { found.append(make("button", "nothing found")); }
    hits.forEach(function (k) { if (boxes[k]) { boxes[k].classList.add("hit"); } });
  }
  function jump(k) {
    find.value = "";
    search();
    find.blur();
    choose(k);
    runTo(k);
  }
  find.addEventListener("input", search);
  find.addEventListener("keydown", function (e) {
    if (e.key === "Enter" && hits.length) { jump(hits[0]); }
    if (e.key === "Escape") { find.value = ""; search(); find.blur(); }
    e.stopPropagation();
  });

  // -- buttons and keys --------------------------------------------------------------------------------------------------
  function press(name, act) { id(name).addEventListener("click", function () { stop(); act(); }); }
  press("start", function () { go(-1); });
  press("back", function () { go(at - 1); });
  press("next", function () { go(at + 1); });
  press("end", function () { go(steps.length - 1); });
  id("play").addEventListener("click", play);
  id("speed").addEventListener("change", function () { if (timer) { stop(); play(); } });
  id("where").addEventListener("input", function (e) { stop(); go(+e.target.value - 1); });
  id("side").addEventListener("click", function (e) {
    var line = e.target.closest("[data-step]");
    if (line) { stop(); go(+line.dataset.step); choose(steps[at].row); }
  });
  document.addEventListener("keydown", function (e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.tagName === "SELECT") { return; }
    var s = size(), onButton = e.target.tagName === "BUTTON";
    var act = {
      ArrowRight: function () { stop(); go(at + 1); }, ArrowLeft: function () { stop(); go(at - 1); },
      ArrowDown: function () { stop(); go(at + 1); }, ArrowUp: function () { stop(); go(at - 1); },
      Home: function () { stop(); go(-1); }, End: function () { stop(); go(steps.length - 1); },
      " ": onButton ? null : play, r: function () { if (chosen >= 0) { runTo(chosen); } }, "/": function () { find.focus(); },
      "+": function () { zoom(0.7, s.w / 2, s.h / 2); }, "-": function () { zoom(1 / 0.7, s.w / 2, s.h / 2); }, "0": fit,
      Escape: function () { choose(-1); }
    }[e.key];
    if (act) { act(); e.preventDefault(); }
  });
  if (full) {
    fit();
    var last = rows.findIndex(function (r, i) { return boxes[i]; });
    if (unit() > 1.6 && last >= 0) { center(last); }
    else if (unit() < 0.55) { var s = size(), u = 0.55; look({ x: full.x + full.w / 2 - s.w * u / 2, y: full.y + full.h / 2 - s.h * u / 2, w: s.w * u, h: s.h * u }); }
  }
  go(-1);
}());
