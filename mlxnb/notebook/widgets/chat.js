// A chat with a session. Text of models and users reaches the page as text nodes, or as HTML that
// the kernel has sanitized and that `fragment` takes apart once more: nothing is loaded or run.

const PATIENCE_MS = 700; // a kernel that has not taken a message by then is busy
const TAGS = new Set(
  ("P BR HR DIV BLOCKQUOTE PRE CODE EM STRONG DEL S A UL OL LI TABLE THEAD TBODY TR TH TD").split(" "),
);
const STYLES = /^(text-align:(left|center|right)|font-weight:600;font-size:[\d.]+em)$/;
const ATTRIBUTES = {
  __proto__: null,
  href: (value) => /^(https?:\/\/|mailto:)/i.test(value),
  start: (value) => /^\d+$/.test(value),
  style: (value) => STYLES.test(value),
  role: (value) => value === "heading",
  "aria-level": (value) => /^[1-6]$/.test(value),
};

// What takes keys itself: JupyterLab's keys, such as b for a new cell, are not meant there.
const KEYED = new Set(["button", "input", "select", "summary", "textarea"]);
// What a question is answered with: the key, the button's text and title, and what is sent.
const CONSENTS = [
  ["y", "Yes", "Make this call", "yes"],
  ["n", "No", "Do not make this call", "no"],
  ["a", "Always", "Make this call and all further ones of this function", "always"],
];
// So long a new question takes no answer: what is pressed then was meant for what was there before.
const UNREAD_MS = 500;
const ANSWERS = new Map(CONSENTS.map(([key, , , consent]) => [key, consent]));

/** An element with properties and children; strings become text. */
function make(name, properties = {}, ...children) {
  const { dataset = {}, aria = {}, ...plain } = properties;
  const element = Object.assign(document.createElement(name), plain);
  Object.assign(element.dataset, dataset);
  if (KEYED.has(name)) element.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const [key, value] of Object.entries(aria)) element.setAttribute(`aria-${key}`, value);
  element.append(...children);
  return element;
}

/** Sanitized HTML as nodes: elements and attributes of plain text alone. */
function fragment(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const made = document.createDocumentFragment();
  copy(parsed.body, made);
  return made;
}

function copy(from, to) {
  for (const node of from.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) to.append(node.data);
    else if (TAGS.has(node.tagName)) to.append(copied(node));
  }
}

function copied(node) {
  if (node.tagName === "PRE") return codeBox("", node.textContent);
  const made = document.createElement(node.tagName);
  for (const { name, value } of node.attributes) {
    if (ATTRIBUTES[name]?.(value)) made.setAttribute(name, value);
  }
  if (node.tagName === "A") Object.assign(made, { target: "_blank", rel: "noopener noreferrer" });
  copy(node, made);
  return made;
}

function codeBox(lang, text) {
  const code = make("code", {}, document.createTextNode(text));
  return make(
    "figure",
    { className: "mlxnb-code" },
    make(
      "figcaption",
      {},
      make("span", { className: "mlxnb-lang" }, lang),
      button("Copy", "Copy the code", "copy-code"),
      button("Run in new cell", "Run the code in a new cell below", "run-code"),
    ),
    make("pre", {}, code),
  );
}

function button(text, title, action) {
  return make("button", { type: "button", title, dataset: { action } }, text);
}

const count = (number) => (number ?? 0).toLocaleString("en");

/** Blocks of a growing text; those that have not changed are not touched. */
class Blocks {
  constructor(element) {
    this.element = element;
    this.shown = [];
  }

  /** Show all of it. */
  set(blocks) {
    this.put(0, blocks);
    while (this.element.childNodes.length > blocks.length) this.element.lastChild.remove();
    this.shown.length = blocks.length;
  }

  /** Show news: text behind the code of block `at`, and blocks from there on. */
  take({ at, more, blocks }) {
    if (more !== undefined) {
      const code = this.element.childNodes[at]?.querySelector("code");
      code?.firstChild.appendData(more);
      if (this.shown[at]) this.shown[at].code += more;
    }
    this.put(more === undefined ? at : at + 1, blocks);
  }

  put(at, blocks) {
    blocks.forEach((block, offset) => {
      const place = at + offset;
      const there = this.shown[place];
      if (there && there.html === block.html && there.code === block.code) return;
      const made = make("div", { className: "mlxnb-block" });
      if (block.code === undefined) made.append(fragment(block.html));
      else made.append(codeBox(block.lang, block.code));
      if (this.element.childNodes[place]) this.element.childNodes[place].replaceWith(made);
      else this.element.append(made);
      this.shown[place] = { ...block };
    });
  }
}

/** One turn. */
class Exchange {
  constructor(told) {
    this.id = told.id;
    this.said = make("div", { className: "mlxnb-said" });
    this.results = make("div");
    this.reasoning = make("div");
    this.thought = make("details", { className: "mlxnb-thought", hidden: true }, make("summary", {}, "Reasoning"), this.reasoning);
    this.answer = make("div", { className: "mlxnb-answer" });
    this.calls = make("div");
    this.outputs = make("div");
    this.question = make("div", { className: "mlxnb-question", hidden: true, tabIndex: -1, role: "group" });
    this.progress = make("progress", { max: 1, value: 0, aria: { label: "Prefill" } });
    this.done = make("span");
    this.prefill = make("div", { className: "mlxnb-prefill", hidden: true }, this.progress, this.done);
    this.meter = make("div", { className: "mlxnb-meter" });
    this.mine = make("div", { className: "mlxnb-actions" }, button("Edit", "Edit this message in a new branch", "edit"));
    this.own = make(
      "div",
      { className: "mlxnb-actions", hidden: true },
      button("Copy", "Copy the answer", "copy-answer"),
      button("Regenerate", "Answer again, in a new branch", "regenerate"),
    );
    this.question.setAttribute("data-lm-suppress-shortcuts", "true");
    this.element = make(
      "article",
      { className: "mlxnb-exchange", dataset: { id: told.id } },
      make("div", { className: "mlxnb-user" }, this.said, this.mine),
      this.results,
      this.thought,
      this.answer,
      this.calls,
      this.outputs,
      this.question,
      this.prefill,
      this.meter,
      this.own,
    );
    this.texts = { answer: new Blocks(this.answer), reasoning: new Blocks(this.reasoning) };
    this.set(told);
  }

  set(told) {
    this.told = told;
    this.said.textContent = told.said ?? "";
    this.said.parentElement.hidden = told.said === null;
    this.results.replaceChildren(...told.results.map((r) => folded(`result of ${r.name}`, r.text)));
    this.texts.answer.set(told.answer);
    this.texts.reasoning.set(told.reasoning);
    this.thought.hidden = !told.reasoning.length;
    this.setCalls(told.calls);
    this.prefill.hidden = true;
    this.outputs.replaceChildren(...(told.outputs ?? []).map(printed));
    this.setPending(told.pending);
    this.own.hidden = told.running || Boolean(told.pending);
    this.element.setAttribute("aria-busy", String(this.own.hidden));
    this.element.classList.toggle("mlxnb-lost", !told.running && !told.kept);
    this.meter.replaceChildren(...metered(told.meter));
  }

  setCalls(calls) {
    this.calls.replaceChildren(...calls.map((c) => folded(`call ${c.name}`, c.arguments)));
  }

  /** A call that the user is asked about, that waits for a cell's end, or that takes a while. */
  setPending(pending) {
    const key = pending ? [pending.state, pending.id, pending.output].join(" ") : "";
    if (this.question.dataset.key === key) return;
    this.question.dataset.key = key;
    this.question.hidden = !pending;
    const asks = pending?.state === "ask";
    const answers = asks ? CONSENTS.map(([key, text, title, consent]) => button(text, `${title} (${key})`, `answer-${consent}`)) : [];
    for (const choice of answers) choice.disabled = true;
    setTimeout(() => answers.forEach((choice) => (choice.disabled = false)), UNREAD_MS);
    const output = pending?.output ? [make("pre", {}, pending.output)] : [];
    this.question.replaceChildren(...(pending ? [make("span", {}, SAID[pending.state](pending)), ...answers, ...output] : []));
    this.question.setAttribute("aria-label", asks ? `May ${pending.name} be called?` : "");
  }

  stream(news) {
    if (news.prefill) this.setPrefill(news.prefill);
    if (news.answer || news.reasoning || news.calls) this.prefill.hidden = true;
    if (news.reasoning) {
      this.thought.hidden = false;
      this.texts.reasoning.take(news.reasoning);
    }
    if (news.answer) this.texts.answer.take(news.answer);
    if (news.calls) this.setCalls(news.calls);
  }

  setPrefill({ done, total, cached }) {
    this.prefill.hidden = done >= total;
    Object.assign(this.progress, { max: total || 1, value: done });
    this.done.textContent = `prefill ${count(done)} of ${count(total)} tokens, ${count(cached)} cached`;
  }
}

const SAID = {
  ask: (call) => `Call ${call.name} ${call.arguments}?`,
  wait: (call) => `${call.name} is called when what runs in the kernel has ended.`,
  run: (call) => `${call.name} is running …`,
  cell: (call) => `The cell asks whether ${call.name} ${call.arguments} may be called.`,
};

/** What a function has printed and displayed. */
function printed({ name, text, images }) {
  const pictures = images.filter((image) => /^data:image\/(png|jpeg|svg\+xml);base64,[A-Za-z0-9+/=]+$/.test(image));
  return make(
    "details",
    { className: "mlxnb-call mlxnb-output", open: true },
    make("summary", {}, `output of ${name}`),
    ...(text ? [make("pre", {}, text)] : []),
    ...pictures.map((image) => make("img", { alt: `figure of ${name}`, src: image })),
  );
}

function folded(name, text) {
  return make("details", { className: "mlxnb-call" }, make("summary", {}, name), make("pre", {}, text));
}

function metered(meter) {
  if (!meter) return [];
  const parts = ["cached", "computed", "generated"].filter((name) => meter[name] !== undefined);
  const facts = [parts.map((name) => `${name} ${count(meter[name])}`).join(" | ")];
  if (meter.ttft_s != null) facts.push(`first token ${meter.ttft_s.toFixed(2)} s`);
  facts.push(meter.end, meter.problem);
  const said = make("span", {}, facts.filter(Boolean).join(" · "));
  return parts.length ? [metersBar(meter), said] : [said];
}

/** Tokens by where their KV came from; `cached` where nobody knows more than that. */
function metersBar(meter) {
  const { cached, computed, generated, origins = {} } = meter;
  const known = ["hot", "memory", "disk"].filter((name) => origins[name]).map((name) => [name, origins[name]]);
  const reused = known.length ? known : [["cached", cached]];
  const tokens = [...reused, ["computed", computed], ["generated", generated]].filter(([, number]) => number);
  const title = tokens.map(([name, number]) => `${name} ${count(number)}`).join(", ");
  const bar = make("span", { className: "mlxnb-bar", title, aria: { hidden: "true" } });
  for (const [name, number] of tokens) {
    const part = make("span", { className: `mlxnb-${name}` });
    part.style.flexGrow = number;
    bar.append(part);
  }
  return bar;
}

/** The widget in one place of the page. */
class Chat {
  constructor(model, element) {
    this.model = model;
    this.exchanges = new Map();
    this.waiting = new Map(); // what the kernel has not answered yet, by request
    this.edits = new Map(); // texts of edited messages that are on their way, by request
    this.own = Math.random().toString(36).slice(2);
    this.asked = 0;
    this.busy = false;
    this.build(element);
    this.listen();
    this.showSaved();
    this.ask({ kind: "hello", view: this.own });
  }

  // --- the page ------------------------------------------------------------------------------

  build(element) {
    this.sessions = make("select", { title: "Session", aria: { label: "Session" } });
    this.models = make("select", { title: "Model; another one begins a new session", aria: { label: "Model" } });
    this.controls = ["temperature", "top_p", "max_tokens", "seed"].map((name) => {
      const whole = name === "max_tokens" || name === "seed";
      return make("input", { type: "number", name, min: 0, step: whole ? 1 : "any", placeholder: "default" });
    });
    const settings = make(
      "details",
      { className: "mlxnb-settings" },
      make("summary", {}, "Sampling"),
      ...this.controls.map((input) => make("label", {}, input.name.replace("_", " "), input)),
    );
    this.log = make("div", { className: "mlxnb-log", tabIndex: 0, role: "log", aria: { label: "Conversation", live: "off" } });
    this.status = make("div", { className: "mlxnb-status", role: "status", aria: { live: "polite" } });
    this.box = make("textarea", {
      rows: 2,
      placeholder: "Message: Enter sends, Shift-Enter makes a new line, Esc stops",
      aria: { label: "Message" },
    });
    this.sender = button("Send", "Send (Enter)", "send");
    this.stopper = button("Stop", "Stop (Esc)", "stop");
    this.root = make(
      "section",
      { className: "mlxnb-chat tex2jax_ignore mathjax_ignore", aria: { label: "Chat" } },
      make("header", {}, this.sessions, button("New", "Begin a new session", "new"), this.models, settings),
      this.log,
      this.status,
      make("footer", {}, this.box, make("div", {}, this.sender, this.stopper)),
    );
    this.log.setAttribute("data-lm-suppress-shortcuts", "true");
    this.refresh();
    element.append(this.root, hidesCopy(this.model.get("key")));
  }

  listen() {
    this.onMessage = (told) => this.hear(told);
    this.onLive = () => this.checkLive();
    this.model.on("msg:custom", this.onMessage);
    this.model.on("comm_live_update", this.onLive);
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("click", (event) => this.click(event));
    for (const list of [this.sessions, this.models]) {
      list.addEventListener("focus", () => this.ask({ kind: "list" }));
    }
    this.sessions.addEventListener("change", () => this.ask({ kind: "session", name: this.sessions.value }));
    this.models.addEventListener("change", () => this.ask({ kind: "new", model: this.models.value }));
    this.unsave = savesWith(this.model);
  }

  remove() {
    this.model.off("msg:custom", this.onMessage);
    this.model.off("comm_live_update", this.onLive);
    for (const timer of this.waiting.values()) clearTimeout(timer);
    this.model.send({ kind: "bye", view: this.own });
    this.unsave();
  }

  /** What was saved with the notebook, until a kernel says more. */
  showSaved() {
    const saved = this.model.get("transcript") ?? [];
    this.setAll(saved);
    this.checkLive();
  }

  async checkLive() {
    const manager = this.model.widget_manager;
    try {
      const model = await manager.get_model(this.model.get("key"));
      if (model.comm_live !== false) return;
    } catch {
      return; // not every front end tells
    }
    this.root.classList.add("mlxnb-saved");
    const state = this.model.get("save") ? "This is what was saved" : "Nothing of this chat is saved";
    this.say(`${state}: its kernel is gone. Run the cell to go on.`);
    this.refresh();
  }

  refresh() {
    const dead = this.root.classList.contains("mlxnb-saved");
    this.box.readOnly = dead;
    this.stopper.disabled = dead || !(this.busy || this.sending);
    for (const control of [this.sender, this.sessions, this.models]) control.disabled = dead;
    this.log.setAttribute("aria-busy", String(this.busy));
  }

  say(text) {
    this.unsent = false;
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  /** Say what has happened by itself; why a message was not sent is not written over. */
  report(text) {
    if (!(this.unsent && this.box.value)) this.say(text);
  }

  // --- what the user does --------------------------------------------------------------------

  key(event) {
    if (event.key === "Escape") {
      const editor = event.target.closest(".mlxnb-editor");
      if (editor) this.closeEditor(editor);
      else if (this.busy || this.sending) this.stop();
    } else if (ANSWERS.has(event.key) && !modified(event) && event.target.closest(".mlxnb-question")) {
      this.answer(event.target, ANSWERS.get(event.key));
    } else if (event.key === "Enter" && event.shiftKey && event.target.tagName === "TEXTAREA") {
      newLine(event.target);
    } else if (event.key === "Enter" && !event.isComposing) {
      if (event.target === this.box) this.send();
      else if (event.target.closest(".mlxnb-editor")) this.sendEdit(event.target.closest(".mlxnb-editor"));
      else return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  click(event) {
    const pressed = event.target.closest("button[data-action]");
    if (!pressed) return;
    const exchange = this.exchanges.get(Number(pressed.closest(".mlxnb-exchange")?.dataset.id));
    const code = () => pressed.closest("figure").querySelector("code").textContent.replace(/\n$/, "");
    const actions = {
      send: () => this.send(),
      stop: () => this.stop(),
      new: () => this.ask({ kind: "new" }),
      edit: () => this.openEditor(exchange),
      "close-editor": () => this.closeEditor(pressed.closest(".mlxnb-editor")),
      "send-edit": () => this.sendEdit(pressed.closest(".mlxnb-editor")),
      regenerate: () => this.ask({ kind: "regenerate", exchange: exchange.id, sampling: this.sampling() }),
      "copy-answer": () => this.copy(exchange.answer.innerText),
      "copy-code": () => this.copy(code()),
      "run-code": () => this.runCode(code()),
      ...Object.fromEntries(CONSENTS.map(([, , , said]) => [`answer-${said}`, () => this.answer(pressed, said)])),
    };
    actions[pressed.dataset.action]();
  }

  sampling() {
    const given = this.controls.filter((input) => input.value !== "");
    return Object.fromEntries(given.map((input) => [input.name, Number(input.value)]));
  }

  send() {
    if (!this.box.value.trim() || this.sending) return;
    this.sending = this.ask({ kind: "send", text: this.box.value, sampling: this.sampling() });
    this.refresh();
  }

  stop() {
    const kernel = this.model.widget_manager?.kernel;
    const asks = [...this.exchanges.values()].some(({ told }) => told.pending?.state === "cell");
    // a cell that asks is stopped by the front end, which otherwise waits for an answer
    if (asks && kernel?.interrupt) kernel.interrupt();
    else this.model.send({ kind: "stop" });
    if (document.activeElement?.closest(".mlxnb-question")) this.log.focus(); // it goes
    this.say("Stopping …");
  }

  /** Say whether the call may be made that is asked about where `target` is. */
  answer(target, consent) {
    const { told, question } = this.exchanges.get(Number(target.closest(".mlxnb-exchange").dataset.id));
    if (told.pending?.state !== "ask" || question.querySelector("button:disabled")) return;
    this.ask({ kind: "answer", call: told.pending.id, consent });
    this.log.focus(); // what else is typed is not meant for the message box
  }

  openEditor(exchange) {
    const text = make("textarea", { rows: 3, value: exchange.told.said, aria: { label: "Edited message" } });
    const editor = make(
      "div",
      { className: "mlxnb-editor" },
      text,
      button("Send", "Send in a new branch (Enter)", "send-edit"),
      button("Cancel", "Leave it as it is (Esc)", "close-editor"),
    );
    exchange.mine.hidden = true;
    exchange.said.after(editor);
    text.focus();
  }

  closeEditor(editor) {
    editor.parentElement.querySelector(".mlxnb-actions").hidden = false;
    editor.remove();
    this.box.focus();
  }

  sendEdit(editor) {
    const text = editor.querySelector("textarea").value;
    const exchange = Number(editor.closest(".mlxnb-exchange").dataset.id);
    if (!text.trim()) return;
    this.edits.set(this.ask({ kind: "edit", exchange, text, sampling: this.sampling() }), text);
    this.box.focus();
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.say("Copied.");
    } catch {
      this.say("The browser does not let this page copy: select the text and copy it.");
    }
  }

  async runCode(source) {
    const cell = insertedBelow(this.model, this.root, source);
    if (!cell) {
      await this.copy(source);
      this.say("This front end lets no widget add cells: the code is on the clipboard.");
    } else {
      const ran = await runCell(cell, source);
      this.say(ran ? "Running in a new cell below." : "In a new cell below: Shift-Enter runs it.");
    }
  }

  // --- the kernel ----------------------------------------------------------------------------

  ask(message) {
    const id = `${this.own}-${this.asked++}`;
    const timer = setTimeout(() => this.late(message), PATIENCE_MS);
    if (this.unsent && message.kind !== "list") this.say("");
    this.waiting.set(id, timer);
    this.model.send({ ...message, id });
    return id;
  }

  late({ kind }) {
    if (this.root.classList.contains("mlxnb-saved")) return;
    if (this.model.widget_manager?.kernel === null) {
      this.say("There is no kernel: start it and run the cell again.");
      this.sending = null;
      return;
    }
    const what = { send: "your message is sent", hello: "this chat comes up" }[kind] ?? "this is done";
    this.say(`The kernel is busy: ${what} when the cell ends.`);
    this.isLate = true;
  }

  settle(id) {
    if (!this.waiting.has(id)) return;
    clearTimeout(this.waiting.get(id));
    this.waiting.delete(id);
    if (this.isLate) this.report("");
    this.isLate = false;
  }

  hear(told) {
    const handlers = {
      taken: () => this.settle(told.request),
      refused: () => this.refused(told),
      list: () => this.setLists(told),
      transcript: () => this.setTranscript(told),
      exchange: () => this.setExchange(told),
      stream: () => this.stream(told),
      busy: () => this.setBusy(told.busy),
    };
    handlers[told.kind]?.();
  }

  refused({ request: id, reason }) {
    this.settle(id);
    const unsent = this.sending === id || this.edits.has(id);
    if (this.sending === id) this.sending = null;
    if (!this.box.value) this.box.value = this.edits.get(id) ?? "";
    this.edits.delete(id);
    this.refresh();
    this.say(unsent ? `Not sent: ${reason}` : reason);
    this.unsent = unsent;
  }

  setLists({ sessions, models }) {
    fill(this.sessions, sessions.map((s) => [s.name, s.name]), this.session);
    fill(this.models, models.map((name) => [name, short(name)]), this.modelName);
  }

  setTranscript(told) {
    this.root.classList.remove("mlxnb-saved");
    if (this.session !== told.session) this.report("");
    this.session = told.session;
    this.modelName = told.model;
    fill(this.sessions, null, told.session);
    fill(this.models, null, told.model);
    this.setAll(told.exchanges);
    this.setBusy(told.busy);
    if (told.busy) told.exchanges.forEach((exchange) => exchange.pending && this.attend(exchange));
  }

  setAll(exchanges) {
    const ids = new Set(exchanges.map((told) => told.id));
    for (const [id, exchange] of this.exchanges) {
      if (ids.has(id)) continue;
      exchange.element.remove();
      this.exchanges.delete(id);
    }
    for (const told of exchanges) this.put(told);
    this.log.scrollTop = this.log.scrollHeight;
  }

  put(told) {
    const there = this.exchanges.get(told.id);
    if (there) {
      there.set(told);
      return;
    }
    const made = new Exchange(told);
    this.exchanges.set(told.id, made);
    this.log.append(made.element);
  }

  setExchange({ exchange, busy }) {
    this.following(() => this.put(exchange));
    if (this.sending && exchange.request === this.sending) {
      this.sending = null;
      this.box.value = "";
    }
    this.setBusy(busy);
    if (busy) {
      this.attend(exchange);
      return;
    }
    this.report(ended(exchange.meter ?? {}));
    if (this.log === document.activeElement && this.attended !== undefined) this.box.focus();
    this.attended = undefined;
  }

  /** Say what a call waits for; who is in this chat and writes nothing can answer with a key. */
  attend({ id, pending }) {
    if (!pending && this.attended) this.report("Answering …");
    if (pending || this.attended !== undefined) this.attended = Boolean(pending);
    if (!pending) return;
    this.report(pending.state === "ask" ? `May ${pending.name} be called? y, n or a (always).` : SAID[pending.state](pending));
    if (pending.state !== "ask") return;
    const { question } = this.exchanges.get(id);
    question.scrollIntoView({ block: "nearest" });
    if (this.root.contains(document.activeElement) && !this.box.value) question.focus();
  }

  stream(told) {
    this.following(() => this.exchanges.get(told.id)?.stream(told));
  }

  setBusy(busy) {
    if (busy && !this.busy) this.report("Answering …");
    this.busy = busy;
    this.refresh();
  }

  /** Change the log and keep its end in sight, if it is. */
  following(change) {
    const { scrollHeight, scrollTop, clientHeight } = this.log;
    const follows = scrollHeight - scrollTop - clientHeight < 48;
    change();
    if (follows) this.log.scrollTop = this.log.scrollHeight;
  }
}

const modified = (event) => event.ctrlKey || event.altKey || event.metaKey;

/** How a turn has ended. */
const ended = ({ problem, end }) => problem || (end ? `The answer has ended: ${end}.` : "The answer is complete.");

/** A model's name without most of its folders. */
const short = (name) => name.split("/").slice(-2).join("/");

/** Where the cursor is; JupyterLab takes this key's own line break away from all in a cell. */
function newLine(box) {
  box.setRangeText("\n", box.selectionStart, box.selectionEnd, "end");
  box.scrollTop = box.scrollHeight;
}

function fill(select, pairs, chosen) {
  const same = pairs?.every(([value], at) => select.options[at]?.value === value);
  if (pairs && !(same && pairs.length === select.options.length)) select.replaceChildren(...pairs.map(([value, text]) => make("option", { value }, text)));
  const there = [...select.options].some((option) => option.value === chosen);
  if (!there && chosen) select.append(make("option", { value: chosen }, short(chosen)));
  select.value = chosen ?? "";
}

// --- JupyterLab ------------------------------------------------------------------------------

/** Put a cell below the widget's own; its number, or null where the front end has no such thing. */
function insertedBelow(model, root, source) {
  const notebook = model.widget_manager?.context?.model?.sharedModel;
  if (!notebook?.insertCell) return null;
  const own = Number(root.closest("[data-windowed-list-index]")?.dataset.windowedListIndex);
  const at = Number.isInteger(own) ? own + 1 : notebook.cells.length;
  notebook.insertCell(at, { cell_type: "code", source });
  return { at, panel: root.closest(".jp-Notebook"), cell: notebook.cells[at] };
}

/** Run a cell as its keys do; whether it has begun. */
async function runCell({ at, panel, cell }) {
  const find = () => panel?.querySelector(`[data-windowed-list-index="${at}"] .cm-content`);
  for (let tries = 0; !find() && tries < 40; tries++) await pause(25);
  const editor = find();
  if (!editor) return false;
  editor.focus();
  await pause(50);
  const keys = { key: "Enter", code: "Enter", keyCode: 13, ctrlKey: true, bubbles: true, cancelable: true };
  editor.dispatchEvent(new KeyboardEvent("keydown", keys));
  for (let tries = 0; tries < 20; tries++) {
    if (cell.executionState === "running" || cell.execution_count !== null) return true;
    await pause(25);
  }
  return false;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Hides the copy of the transcript that is read where no widgets are. */
function hidesCopy(key) {
  return make("style", {}, /^\w+$/.test(key) ? `.mlxnb-copy-${key} { display: none; }` : "");
}

/** With `save`, let the notebook have the widgets' state when it is saved; undoes it. */
function savesWith(model) {
  const manager = model.widget_manager;
  const context = manager?.context;
  if (!model.get("save") || !context?.saveState || typeof manager._saveState !== "function") return () => {};
  const save = (_, state) => {
    if (state === "started") manager._saveState();
  };
  const changed = () => {
    context.model.dirty = true;
  };
  context.saveState.connect(save);
  model.on("change:transcript", changed);
  return () => {
    context.saveState.disconnect(save);
    model.off("change:transcript", changed);
  };
}

export default {
  render({ model, el }) {
    const chat = new Chat(model, el);
    return () => chat.remove();
  },
};
