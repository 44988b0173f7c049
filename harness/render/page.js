"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const drawn = new Set();

  // Plots: colours are tokens, so that a figure follows the theme of the reader.
  const themed = (value, style) => {
    if (Array.isArray(value)) return value.map((item) => themed(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, themed(v, style)]));
    }
    const token = typeof value === "string" && /^\$([a-z]+)$/.exec(value);
    return token ? style.getPropertyValue(`--${token[1]}`).trim() : value;
  };
  const draw = (box) => {
    const figure = figures[box.dataset.figure];
    if (!figure) return;
    const style = getComputedStyle(document.documentElement);
    const { data, layout } = themed(figure, style);
    const narrow = box.clientWidth < 600;
    if (narrow && layout.annotations) {
      layout.annotations = layout.annotations.filter(({ name }) => name !== "wide");
    }
    if (narrow && layout.xaxis.type === "date") layout.xaxis.nticks = 3;
    layout.font.family = getComputedStyle(document.body).fontFamily;
    box.style.minHeight = `${layout.height}px`;
    drawn.add(box);
    Plotly.react(box, data, layout, { displayModeBar: false, responsive: true });
  };
  const boxes = [...document.querySelectorAll("[data-figure]")];
  for (const box of boxes) {
    const figure = figures[box.dataset.figure];
    if (figure) box.style.minHeight = `${figure.layout.height}px`;
  }
  const near = new IntersectionObserver(
    (seen) => {
      for (const { isIntersecting, target } of seen) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        draw(target);
      }
    },
    { rootMargin: "600px" },
  );
  boxes.forEach((box) => near.observe(box));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
  addEventListener("beforeprint", () => boxes.forEach((box) => drawn.has(box) || draw(box)));

  // Sorting: numbers as numbers, names as a reader expects them; ties keep the order of rank.
  const order = new Intl.Collator("en", { numeric: true });
  const compare = (key) => (a, b) => {
    const [x, y] = [a.dataset[key], b.dataset[key]];
    const by = key === "name" ? order.compare(x, y) : Number(x) - Number(y);
    return by;
  };
  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const before = head.getAttribute("aria-sort");
      const first = button.dataset.first || "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const next = before === first ? other : first;
      const body = button.closest("table").tBodies[0];
      const rows = [...body.rows].sort(compare("rank"));
      rows.sort((a, b) => (next === "ascending" ? 1 : -1) * compare(button.dataset.sort)(a, b));
      body.append(...rows);
      for (const cell of head.parentNode.querySelectorAll("[aria-sort]")) {
        cell.setAttribute("aria-sort", cell === head ? next : "none");
      }
    });
  }

  for (const field of document.querySelectorAll("[data-find]")) {
    const table = document.getElementById(field.dataset.find);
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      let found = 0;
      for (const row of table.tBodies[0].rows) {
        const fits = `${row.dataset.name}\n${row.dataset.author}`.toLowerCase().includes(wanted);
        row.hidden = !fits;
        found += fits;
      }
      table.nextElementSibling.hidden = found > 0;
    });
  }

  // A link to a submission opens its section.
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) {
      target.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[href^='#']");
    if (link && link.hash === location.hash) open();
  });
  open();
})();
