// The page of `ingot inspect --html`: tables and bars in plain HTML and CSS, a few lines of script to filter nodes.
#include "base/error.h"
#include "cli/commands.h"
#include "cli/summary.h"
#include "cli/terminal.h"

namespace ingot {
namespace {

constexpr const char* kStyle = R"(
:root{--bg:#fbfaf8;--card:#fff;--ink:#22262b;--soft:#6b7280;--line:#e6e3dd;--bar:#c9772f;--tint:#f6ede3}
@media(prefers-color-scheme:dark){:root{--bg:#16181b;--card:#1e2125;--ink:#e7e5e1;--soft:#9aa0a8;--line:#2e3238;--bar:#d98b45;--tint:#2a2520}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:68rem;margin:0 auto;padding:2.5rem 1.25rem}h1{font-size:1.5rem;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:2.25rem 0 .75rem}.soft{color:var(--soft)}code,.mono{font-family:ui-monospace,monospace;font-size:.86em}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin-top:1.25rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.8rem 1rem}.card b{display:block;font-size:1.35rem}
table{border-collapse:collapse;width:100%;background:var(--card);border:1px solid var(--line);border-radius:.6rem;overflow:hidden}
td,th{padding:.35rem .75rem;text-align:left;border-top:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th{border-top:0;background:var(--tint);font-weight:600;font-size:.85rem}td.n{text-align:right;width:4rem}td.bar{width:50%}
.bar i{display:block;height:.7rem;margin-top:.35rem;border-radius:.2rem;background:var(--bar)}
input{width:100%;margin:0 0 .75rem;padding:.5rem .75rem;border:1px solid var(--line);border-radius:.5rem;background:var(--card);color:inherit;font:inherit}
)";
constexpr const char* kScript = R"(
const box=document.getElementById('filter');
box.oninput=()=>{const q=box.value.toLowerCase();
for(const r of document.querySelectorAll('#nodes tr.node'))r.hidden=!r.textContent.toLowerCase().includes(q)};
)";
constexpr size_t kMaxNodes = 20'000;  // browsers are not made for more rows

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string card(const std::string& value, const std::string& label) {
  return fmt::format("<div class=card><b>{}</b><span class=soft>{}</span></div>", escape(value), escape(label));
}

std::string ports(const Model& model) {
  std::string out = "<table><tr><th><th>name<th>type<th>shape";
  auto row = [&out](const char* kind, const Port& p) {
    out += fmt::format("<tr><td class=soft>{}<td class=mono>{}<td class=mono>{}<td class=mono>{}", kind, escape(p.name),
                       name(p.dtype), p.shape ? escape(str(*p.shape)) : "not known");
  };
  for (const Port& p : model.inputs()) row("input", p);
  for (const Port& p : model.outputs()) row("output", p);
  return out + "</table>";
}

std::string bars(const Counts& counts) {
  std::string out = "<table>";
  for (const auto& [name, n] : counts)
    out += fmt::format("<tr><td class=mono>{}<td class=n>{}<td class=bar><i style=\"width:{:.1f}%\"></i>", escape(name),
                       n, 100.0 * static_cast<double>(n) / static_cast<double>(counts[0].second));
  return out + "</table>";
}

std::string names(const Graph& graph, const std::vector<TensorId>& ids) {
  std::string out;
  for (TensorId id : ids) {
    if (id == kNoTensor) continue;
    const Tensor& t = graph.tensor(id);
    const std::string type =
        t.info.shape ? fmt::format("{}{}", name(t.info.dtype), str(*t.info.shape)) : std::string(name(t.info.dtype));
    out += fmt::format("<div>{} <span class=soft>{}</span></div>", escape(t.name), escape(type));
  }
  return out;
}

std::string nodes(const Graph& graph) {
  std::string out =
      "<input id=filter placeholder=\"Filter nodes by operator, name or tensor\"><table id=nodes><tr><th>#<th>operator"
      "<th>inputs<th>outputs<th>made from";
  for (size_t i = 0; i < std::min(graph.nodes.size(), kMaxNodes); i++) {
    const Node& n = graph.nodes[i];
    std::string origins;
    for (const std::string& o : n.origins) origins += fmt::format("<div>{}</div>", escape(o));
    out += fmt::format(
        "<tr class=\"node mono\"><td class=soft>{}<td><b>{}</b><div class=soft>{}</div><td>{}<td>{}<td class=soft>{}",
        i, escape(n.qualified_op()), escape(n.name), names(graph, n.inputs), names(graph, n.outputs), origins);
  }
  return out + "</table>";
}

std::string fusion_table(const FusionReport& report) {
  std::string out = "<table><tr><th>fusion<th>at<th>outcome";
  for (const auto& e : report.entries)
    out += fmt::format("<tr><td>{}<td class=mono>{}<td{}>{}", escape(e.fusion), escape(e.node),
                       e.outcome == "matched" ? "" : " class=soft", escape(e.outcome));
  return out + "</table>";
}

}  // namespace

std::string inspect_html(const Model& model, const std::string& path, int64_t arena) {
  const Graph& graph = *model.graph();
  std::string out = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
      "<title>{0}</title><style>{1}</style><main><h1>{0}</h1><div class=soft>{2}</div><div class=cards>",
      escape(path), kStyle, escape(graph.name));
  out += card(std::to_string(graph.nodes.size()), fmt::format("nodes, {} as written", model.original_ops().size()));
  out += card(human_bytes(weight_bytes(graph)), "weights");
  if (arena) out += card(human_bytes(arena), "arena");
  out += "</div><h2>Signature</h2>" + ports(model);
  out += "<h2>Operators</h2>" + bars(operators(graph));
  if (!model.report().entries.empty()) out += "<h2>Fusions</h2>" + fusion_table(model.report());
  out += "<h2>Nodes</h2>" + nodes(graph);
  return out + "</main><script>" + kScript + "</script></html>\n";
}

}  // namespace ingot
