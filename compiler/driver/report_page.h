// How the page behind --report looks and what moves on it; what it says is report.cpp's.
#pragma once

namespace neso {

/// Fits 1,100 pixels: columns have fixed shares of the width, long words break, whatever is wider than its place scrolls inside of it.
inline constexpr char kReportStyle[] = R"css(
:root{color-scheme:light dark;--ink:#1d2330;--soft:#5c6472;--line:#d9dde4;--head:#f2f4f7;--paper:#fff;--card:#f8f9fb;--blue:#2f6fb3;--bar:#9cc3ea;--warn:#b4531a}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7ec;--soft:#9aa3b2;--line:#323946;--head:#1e242e;--paper:#141820;--card:#1a1f28;--blue:#7fb4ea;--bar:#2d5a88;--warn:#f0a36b}}
*{box-sizing:border-box}
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:0 auto;padding:20px 16px 60px;overflow-wrap:anywhere}
h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:34px 0 8px}p{margin:6px 0}
.soft,.f{color:var(--soft)}code,pre{font:12px/1.4 ui-monospace,monospace}
pre{background:var(--card);padding:8px;overflow:auto;max-width:100%;margin:6px 0;overflow-wrap:normal}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(135px,1fr));gap:8px;margin:14px 0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:8px 10px}.facts b{display:block;font-size:18px}
table{border-collapse:collapse;width:100%;table-layout:fixed}
th,td{border-bottom:1px solid var(--line);padding:5px 7px;text-align:left;vertical-align:top}
th{background:var(--head);font-weight:600;position:sticky;top:0}th[data-sort]{cursor:pointer}
.n{text-align:right;font-variant-numeric:tabular-nums}
.more>td{padding:0 7px}.more details{margin:2px 0}summary{cursor:pointer;color:var(--blue)}
.bar{position:relative}.bar i{position:absolute;right:0;top:3px;height:23px;background:var(--bar);opacity:.55;border-radius:2px}.bar span{position:relative}
input{font:inherit;width:100%;padding:6px 9px;border:1px solid var(--line);border-radius:6px;background:var(--card);color:inherit;margin:6px 0}
.tools{display:flex;gap:8px;align-items:center}.tools input[type=search]{flex:1;min-width:0}.tools label{white-space:nowrap}.tools input[type=checkbox]{width:auto}
button{font:inherit;color:var(--blue);background:none;border:1px solid var(--line);border-radius:6px;padding:5px 9px;cursor:pointer;text-align:left}
.fold{border:0;padding:0;font-weight:600}.fold::before{content:"▾ "}.fold[aria-expanded=false]::before{content:"▸ "}.g td{background:var(--card)}
svg{width:100%;height:auto;max-height:900px;background:var(--card);border:1px solid var(--line);border-radius:6px}
svg text{fill:var(--ink);font:11px ui-monospace,monospace}svg .node{fill:var(--head);stroke:var(--soft)}svg .edge{fill:none;stroke:var(--blue);stroke-width:1.3}
svg .bound{stroke:#c33;stroke-dasharray:6 4}.unmeasured .timed{display:none}a{color:inherit}
)css";

/// What tables of kernels do: sorting, searching, folding the rows of a part of the model.
inline constexpr char kTableScript[] = R"js(
const table=document.getElementById("kernels"),rows=[...table.querySelectorAll("tbody.k")],groups=[...table.querySelectorAll("tbody.g")];
const search=document.getElementById("search"),fold=document.getElementById("fold");
// Groups are neighbours in the order of the runs: in any other there are none.
const view={folded:new Set(),ordered:true,keep:r=>true};
function digits(v){return v>=100?v.toFixed(0):v>=10?v.toFixed(1):v>=1?v.toFixed(2):v.toPrecision(2)}
function show(){
  const word=search.value.toLowerCase(),open=!view.ordered||!!word;
  for(const row of rows)row.hidden=!view.keep(row)||(word?!row.textContent.toLowerCase().includes(word):!open&&view.folded.has(row.dataset.group));
  for(const g of groups){g.hidden=open;g.querySelector(".fold").setAttribute("aria-expanded",!view.folded.has(g.dataset.group))}
  fold.hidden=!groups.length;fold.textContent=view.folded.size?"unfold modules":"fold modules";
}
for(const g of groups)g.querySelector(".fold").onclick=()=>{const id=g.dataset.group;view.folded.has(id)?view.folded.delete(id):view.folded.add(id);show()};
fold.onclick=()=>{view.folded=new Set(view.folded.size?[]:groups.map(g=>g.dataset.group));show()};
search.oninput=show;
for(const head of table.querySelectorAll("th[data-sort]"))head.onclick=()=>{
  const key=head.dataset.sort,down=head.dataset.down!=="1",plain=key==="index"||key==="name";head.dataset.down=down?"1":"0";
  const of=r=>key==="name"?r.dataset.name:+(r.dataset[key]||0);
  rows.sort((a,b)=>{const x=of(a),y=of(b);return(typeof x==="string"?x.localeCompare(y):x-y)*(down!==plain?-1:1)});
  view.ordered=key==="index"&&down;
  if(view.ordered)for(const g of groups){table.append(g);rows.filter(r=>r.dataset.group===g.dataset.group).forEach(r=>table.append(r))}
  if(!view.ordered||!groups.length)rows.forEach(r=>table.append(r));
  show();
};
show();
)js";

/// Fills in the times that `neso bench --report` has put into the page.
inline constexpr char kReportScript[] = R"js(
const times=JSON.parse(document.getElementById("times").textContent);
if(times){
  document.body.classList.remove("unmeasured");
  for(const cell of document.querySelectorAll(".wide"))cell.colSpan=6;
  const same=times.sizes===document.body.dataset.sizes;
  const total=Object.values(times.kernels).reduce((a,b)=>a+b,0),most=Math.max(...Object.values(times.kernels),1e-9);
  for(const row of rows){
    const ms=times.kernels[row.dataset.name];
    if(ms===undefined)continue;
    row.dataset.time=ms;
    const cell=row.querySelector(".time"),bar=document.createElement("i"),text=document.createElement("span");
    bar.style.width=(100*ms/most)+"%";text.textContent=digits(ms*1e3)+" µs";cell.append(bar,text);
    let need=0;
    if(same&&times.copy_gbs)need=Math.max(need,row.dataset.bytes/times.copy_gbs/1e6);
    if(same&&times.gflops)need=Math.max(need,row.dataset.flops/times.gflops/1e6);
    if(need){row.dataset.limit=need/ms;row.querySelector(".limit").textContent=digits(100*need/ms)+" %"}
  }
  for(const g of groups){
    const sum=rows.filter(r=>r.dataset.group===g.dataset.group).reduce((all,r)=>all+ +(r.dataset.time||0),0);
    g.querySelector(".time").textContent=digits(sum*1e3)+" µs";
  }
  const limits=times.copy_gbs?` Limits of this machine: it copies ${digits(times.copy_gbs)} GB/s`+(times.gflops?` and multiplies ${digits(times.gflops)} GFLOP/s in f32; “of limit” is the larger share.`:"; “of limit” is the share of that."):"";
  document.getElementById("measured").textContent=`Measured on ${times.device}, ${times.threads} threads: a run takes ${digits(times.run_ms)} ms, its steps ${digits(total)} ms.`+limits+(same?"":` These are times at other sizes (${times.sizes}), so that no shares of limits are shown.`);
}
)js";

} // namespace neso
