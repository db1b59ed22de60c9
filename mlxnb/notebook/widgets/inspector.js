/* An inspector's page. All of it is built of elements and text: no string becomes HTML. */

const CHUNK = 256; // tokens that are put on the page at once
const LINE = 22; // pixels that a line of tokens takes, about
const SPANS = 400; // spans of one phase that are drawn; beyond it neighbours are drawn as one
const ORIGINS = ["hot", "memory", "disk", "computed", "generated"];
const PHASES = ["pre_inference", "resolve", "load_wait", "queue", "prefill", "decode"];

const count = (number) => number.toLocaleString("en");
const some = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function heading(text) {
  return make("h4", {}, text);
}

/* --- tokens --------------------------------------------------------------------------------- */

/* The strip of one turn: an overview, the tokens, and what is known of the one that is chosen. */
class Strip {
  constructor(strip, alternatives) {
    this.strip = strip;
    this.alternatives = alternatives;
    this.total = strip.runs.length ? strip.runs[strip.runs.length - 1][2] : 0;
    this.prefix = `mlxnb-${Math.random().toString(36).slice(2)}`;
    this.at = null;
    this.detail = make("div", { class: "detail", role: "status" });
    this.others = make("div", { class: "alternatives" });
    this.list = this.tokens();
    this.element = make(
      "div", {}, this.legend(), this.overview(), this.list, this.detail, this.others,
    );
    this.watch();
  }

  legend() {
    const chips = this.counts().map(([origin, number]) =>
      make("span", { class: "chip", "data-origin": origin, "data-count": number },
        `${origin} ${count(number)}`));
    const parted = this.strip.diverged;
    const note = parted === null ? null : make("button", { "data-key": "parting" },
      `▼ parts from an earlier turn at ${count(parted)}`);
    note?.addEventListener("click", () => this.choose(parted));
    return make("div", { class: "legend" }, ...chips, note);
  }

  /* In the table's order: a saved notebook has the keys of an object in that of the alphabet. */
  counts() {
    const { counts } = this.strip;
    return ORIGINS.filter((name) => name in counts).map((name) => [name, counts[name]]);
  }

  overview() {
    const pieces = this.strip.runs.map(([origin, start, end]) => {
      const name = `${origin}: ${count(start)}–${count(end - 1)}, ${some(end - start, "token")}`;
      const piece = make("div",
        { "data-origin": origin, "data-tokens": end - start, title: name });
      piece.style.flex = `${end - start} 0 0`;
      piece.addEventListener("click", () => this.choose(start));
      return piece;
    });
    if (this.strip.diverged !== null) {
      const mark = make("div", { class: "parting", title: "first difference" });
      mark.style.left = `${(100 * this.strip.diverged) / this.total}%`;
      pieces.push(mark);
    }
    const name = this.counts().map(([o, n]) => `${count(n)} ${o}`).join(", ");
    return make("div", { class: "overview", role: "img", "aria-label": name }, ...pieces);
  }

  tokens() {
    this.chunks = [];
    for (let start = 0; start < this.total; start += CHUNK) {
      this.chunks.push(make("div", { class: "chunk", role: "none", "data-start": start }));
    }
    this.estimate();
    const list = make("div", {
      class: this.strip.texts === null ? "strip hidden-texts" : "strip",
      role: "listbox",
      tabindex: 0,
      "data-key": "tokens",
      "aria-label": `${some(this.total, "token")}; arrow keys move, D goes to the difference`,
    }, ...this.chunks);
    list.style.cssText = "max-height: 300px; overflow: auto"; // before the style sheet is there
    list.addEventListener("keydown", (event) => this.pressed(event));
    list.addEventListener("click", (event) => this.choose(position(event)));
    list.addEventListener("pointerover", (event) => this.hover(event));
    return list;
  }

  /* A chunk that is not filled yet takes about the room that it will need. */
  estimate() {
    const { texts } = this.strip;
    this.chunks.forEach((chunk, number) => {
      const own = texts?.slice(number * CHUNK, (number + 1) * CHUNK) ?? [];
      const letters = texts === null ? 2 * CHUNK : own.reduce((n, text) => n + text.length, 0);
      const height = `${LINE * Math.ceil(letters / 90)}px`;
      chunk.style.minHeight = height;
      chunk.style.containIntrinsicBlockSize = `auto ${height}`; // while it is filled and not seen
    });
  }

  /* Chunks are filled when they come near to what is seen. */
  watch() {
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) this.fill(entry.target);
      }
    }, { root: this.list, rootMargin: "200px" });
    this.chunks.forEach((chunk) => this.observer.observe(chunk));
  }

  fill(chunk) {
    if (chunk.childElementCount) return;
    this.observer.unobserve(chunk);
    const start = Number(chunk.dataset.start);
    const end = Math.min(start + CHUNK, this.total);
    let run = this.strip.runs.findIndex(([, , after]) => start < after);
    const made = [];
    for (let at = start; at < end; at += 1) {
      while (at >= this.strip.runs[run][2]) run += 1;
      made.push(this.token(at, this.strip.runs[run][0]));
    }
    chunk.append(...made);
    chunk.style.minHeight = "";
  }

  token(at, origin) {
    const text = this.strip.read === null ? "·" : this.strip.read[at];
    return make("span", {
      id: `${this.prefix}-${at}`,
      role: "option",
      class: at === this.strip.diverged ? "diverged" : null,
      "data-at": at,
      "data-origin": origin,
      "aria-selected": "false",
      "aria-label": this.name(at, origin),
    }, text.replaceAll("\n", "↵\n") || "∅");
  }

  origin(at) {
    return this.strip.runs.find(([, , end]) => at < end)[0];
  }

  name(at, origin) {
    const { ids, texts, spans, diverged } = this.strip;
    const span = spans.find(([, , , end]) => at < end);
    const message = span[1] === null ? "" : ` of message ${span[1]}`;
    const parts = [`token ${count(at)}`, `${span[0]}${message}`, origin];
    if (ids !== null) parts.splice(1, 0, `id ${ids[at]}`, JSON.stringify(texts[at]));
    if (at === diverged) parts.push("the first that differs from the nearest earlier turn");
    return parts.join(" · ");
  }

  hover(event) {
    const at = position(event);
    if (at !== null) event.target.title = this.name(at, this.origin(at));
  }

  /* Make a token the chosen one: it is outlined, described, and brought into view. */
  choose(at) {
    if (at === null || !this.total) return;
    this.shown()?.setAttribute("aria-selected", "false");
    this.at = Math.max(0, Math.min(at, this.total - 1));
    this.fill(this.chunks[Math.floor(this.at / CHUNK)]);
    const token = this.shown();
    token.setAttribute("aria-selected", "true");
    this.list.setAttribute("aria-activedescendant", token.id);
    token.scrollIntoView({ block: "nearest" });
    this.detail.textContent = this.name(this.at, this.origin(this.at));
    this.others.replaceChildren(...this.table());
  }

  shown() {
    return this.at === null ? null : this.list.querySelector(`[data-at="${this.at}"]`);
  }

  pressed(event) {
    const at = this.at ?? -1;
    const steps = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      ArrowDown: at + 16,
      ArrowUp: at - 16,
      Home: 0,
      End: this.total - 1,
      d: this.strip.diverged,
    };
    const to = steps[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(to);
  }

  /* What else could have stood in a generated token's place. */
  table() {
    const place = this.at - this.strip.prompt;
    if (place < 0) return [];
    const found = this.alternatives[place];
    if (found === undefined) {
      const said = "no alternatives are known: ask with logprobs=5, and inspect that turn";
      return [make("div", { class: "said" }, said)];
    }
    const rows = found.map(([token, logprob, rank, taken]) => {
      const share = logprob === null ? 0 : Math.exp(logprob);
      const bar = make("div", { class: "share", "data-origin": "generated" });
      bar.style.width = `${100 * share}%`;
      return make("tr", { class: taken ? "taken" : null, "data-rank": rank },
        make("td", {}, JSON.stringify(token) + (taken ? " (taken)" : "")),
        make("td", { class: "number" }, `${(100 * share).toFixed(1)} %`),
        make("td", { class: "number" }, logprob === null ? "−∞" : logprob.toFixed(3)),
        make("td", { class: "wide" }, bar));
    });
    const names = ["token", "probability", "log-probability", ""];
    const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
    return [make("table", { "aria-label": "alternatives" }, head, ...rows)];
  }
}

function position(event) {
  const token = event.target.closest?.("[data-at]");
  return token === null || token === undefined ? null : Number(token.dataset.at);
}

/* --- time ----------------------------------------------------------------------------------- */

function timeline(rows) {
  const end = Math.max(...rows.map((row) => row[2]), 1e-9);
  const lines = PHASES.filter((phase) => rows.some((row) => row[0] === phase)).map((phase) => {
    const own = rows.filter((row) => row[0] === phase);
    const seconds = own.reduce((sum, row) => sum + row[2] - row[1], 0);
    const tokens = own.reduce((sum, row) => sum + row[3], 0);
    const said = `${seconds.toFixed(3)} s${tokens ? ` · ${some(tokens, "token")}` : ""}`;
    return make("div", { class: "phase", role: "listitem" },
      make("span", {}, phase.replace("_", "-")),
      make("div", { class: "track" }, ...drawn(own).map((row) => span(phase, row, end))),
      make("span", {}, said));
  });
  return make("div", { class: "timeline", role: "list" }, ...lines);
}

/* The spans that are drawn: where there are very many, neighbours become one. */
function drawn(rows) {
  const each = Math.ceil(rows.length / SPANS);
  const made = [];
  for (let at = 0; at < rows.length; at += each) {
    const group = rows.slice(at, at + each);
    const tokens = group.reduce((sum, row) => sum + row[3], 0);
    made.push([group[0][1], group[group.length - 1][2], tokens]);
  }
  return made;
}

function span(phase, [start, stop, tokens], end) {
  const name = `${phase}: ${start.toFixed(3)}–${stop.toFixed(3)} s`;
  const title = tokens ? `${name}, ${some(tokens, "token")}` : name;
  const made = make("div", { "data-phase": phase, "data-tokens": tokens, title });
  made.style.left = `${(100 * start) / end}%`;
  made.style.width = `${(100 * (stop - start)) / end}%`;
  return made;
}

/* --- the prefix cache ----------------------------------------------------------------------- */

function tree(state, send) {
  const { cache } = state;
  const more = cache.pieces - state.tree.length;
  const list = make("div", { class: "tree", role: "tree", "aria-label": "prefix cache" },
    ...state.tree.map((piece, at) => pieceOf(piece, at, send)));
  list.addEventListener("keydown", (event) => walk(list, event));
  return make("div", {},
    make("div", { class: "said", "data-rows": cache.rows },
      `${some(cache.rows, "row")}, ${some(cache.memory, "byte")} in memory`
        + (cache.disk ? `, ${some(cache.disk, "byte")} on disk` : "")
        + (more > 0 ? `; ${some(more, "piece")} more in engine.prefix_cache()` : "")),
    list);
}

function pieceOf(piece, at, send) {
  const origin = piece.kind === "hot" ? "hot" : piece.tier;
  const next = piece.evict_order === 1;
  const classes = ["piece", piece.pinned && "pinned", next && "next"].filter(Boolean).join(" ");
  const item = make("div", {
    class: classes,
    role: "treeitem",
    tabindex: at === 0 ? 0 : -1,
    "aria-level": piece.depth + 1,
    "data-block": piece.first,
    "data-bytes": piece.bytes,
    "data-hits": piece.hits,
    "data-key": `piece ${piece.first}`,
  });
  item.style.paddingLeft = `${4 + 18 * Math.min(piece.depth, 20)}px`;
  item.append(
    make("span", { class: "chip", "data-origin": origin }, piece.kind),
    make("div", { class: "where" },
      make("div", {}, facts(piece)),
      make("div", { class: "preview", title: piece.preview }, JSON.stringify(piece.preview))),
    ...(piece.tier === "memory" ? [pinButton(piece, send)] : []),
    evictButton(piece, send));
  if (!piece.preview) item.querySelector(".preview").remove();
  return item;
}

function facts(piece) {
  const order = piece.evict_order;
  return [
    `${count(piece.start)}–${count(piece.end)}`,
    piece.rows > 1 ? some(piece.rows, "block") : piece.first.slice(0, 8),
    some(piece.bytes, "byte"),
    some(piece.hits, "hit"),
    piece.leaves > 1 ? `shared by ${count(piece.leaves)} chains` : null,
    piece.owner ? `continued by ${piece.owner}` : null,
    piece.tier === "disk" ? "on disk" : null,
    piece.refs ? `in use by ${count(piece.refs)}` : null,
    piece.pinned ? "pinned" : null,
    order === 1 ? "goes next" : order === null ? null : `goes as number ${count(order)}`,
  ].filter((fact) => fact !== null).join(" · ");
}

function pinButton(piece, send) {
  const name = piece.pinned ? "Unpin" : "Pin";
  const made = make("button", {
    "data-key": `pin ${piece.last}`,
    "aria-label": `${name} ${piece.last.slice(0, 8)} and all before it`,
    "aria-pressed": String(piece.pinned),
  }, name);
  const asked = { do: "pin", block: piece.last, pinned: !piece.pinned };
  made.addEventListener("click", () => send(asked));
  return made;
}

function evictButton(piece, send) {
  const name = `Evict ${piece.first.slice(0, 8)} and all behind it`;
  const made = make("button", { "data-key": `evict ${piece.first}`, "aria-label": name }, "Evict");
  made.addEventListener("click", () => send({ do: "evict", block: piece.first }));
  return made;
}

/* Up and down walk over the pieces; their buttons are reached with Tab. */
function walk(list, event) {
  const items = [...list.querySelectorAll('[role="treeitem"]')];
  const at = items.indexOf(event.target);
  const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
  const to = items[steps[event.key]];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  items[at].tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

/* --- the page ------------------------------------------------------------------------------- */

function header(state, send) {
  const options = state.turns.map(([id, name]) =>
    make("option", { value: id, selected: id === state.turn }, name));
  const chosen = make("select", { "data-key": "turn", "aria-label": "Turn" }, ...options);
  if (state.turn && !state.turns.some(([id]) => id === state.turn)) {
    chosen.prepend(make("option", { value: state.turn, selected: true }, state.turn));
  }
  chosen.addEventListener("change", () => send({ do: "look", turn: chosen.value }));
  const refresh = make("button", { "data-key": "refresh" }, "Refresh");
  refresh.addEventListener("click", () => send({ do: "refresh" }));
  const said = make("span", { class: "said", role: "status" }, state.said);
  return make("header", {}, make("label", {}, "Turn ", chosen), refresh, said);
}

function factsOf(state) {
  const cells = state.facts.flatMap(([name, value]) =>
    [make("dt", {}, name), make("dd", {}, value)]);
  return make("dl", {}, ...cells);
}

const GONE = "This is what was shown last: its kernel is gone. Run the cell to look again.";

/* Whether no kernel can answer: a notebook that was reopened, or a kernel that has ended. */
async function isGone(model) {
  try {
    return (await model.widget_manager.get_model(model.get("key"))).comm_live === false;
  } catch {
    return false; // not every front end tells
  }
}

/* What asks the kernel is off, and the page says why; tokens can be looked at all the same. */
function turnOff(root) {
  const asking = 'header :is(select, button), .tree button';
  for (const control of root.querySelectorAll(asking)) control.disabled = true;
  root.querySelector("header .said").textContent = GONE;
}

function build(root, state, send) {
  const strip = state.strip === null ? null : new Strip(state.strip, state.alternatives);
  const parts = [header(state, send), factsOf(state)];
  if (strip !== null) parts.push(heading("Tokens"), strip.element);
  if (state.timeline.length) parts.push(heading("Time"), timeline(state.timeline));
  parts.push(heading("Prefix cache"), tree(state, send));
  const key = root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  root.replaceChildren(...parts);
  if (key) root.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  return strip;
}

function paint(root, colours) {
  for (const [name, [fill, ink]] of Object.entries(colours)) {
    root.style.setProperty(`--mlxnb-${name}-fill`, fill);
    root.style.setProperty(`--mlxnb-${name}-ink`, ink);
  }
}

function render({ model, el }) {
  const root = make("section", {
    class: "mlxnb-inspector",
    "aria-label": "mlxnb inspector",
    "data-lm-suppress-shortcuts": "true", // keys are the inspector's: D D would delete the cell
  });
  let strip = null;
  const say = (text) => {
    root.querySelector("header .said").textContent = text;
  };
  let gone = false;
  const check = async () => {
    const before = gone;
    gone = await isGone(model);
    if (gone) turnOff(root);
    else if (before) draw();
  };
  const send = async (asked) => {
    say("asked the kernel …");
    await check();
    gone ||= model.widget_manager?.kernel === null;
    if (gone) turnOff(root);
    else model.send(asked);
  };
  const answered = () => say(model.get("state").said);
  const draw = () => {
    strip?.observer.disconnect();
    strip = build(root, model.get("state"), send);
    if (gone) turnOff(root);
  };
  paint(root, model.get("colours"));
  draw();
  check();
  model.on("change:state", draw);
  model.on("comm_live_update", check);
  model.on("msg:custom", answered);
  el.append(root);
  return () => {
    strip?.observer.disconnect();
    model.off("change:state", draw);
    model.off("comm_live_update", check);
    model.off("msg:custom", answered);
  };
}

export default { render };
