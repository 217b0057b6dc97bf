"""Prints kernels that PyTorch's mutation analysis is tested with, as Triton's front end makes them (calls not yet inlined), into
mutation/. The first line of each file names the parameters that the kernel writes: the answer that PyTorch's tests demand.

    python3 make_mutation_goldens.py
"""
import os

import triton
import triton.language as tl
import triton.compiler.compiler as compiler
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton._C.libtriton import ir

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mutation")
P = "*fp32"


def go(name, fn, signature, consts={}, want=()):
    names = fn.arg_names
    source = ASTSource(fn=fn, signature={n: "constexpr" if n in consts else signature[n] for n in names},
                       constexprs={(names.index(n), ): v for n, v in consts.items()})
    target = GPUTarget("cuda", 90, 32)
    backend = compiler.make_backend(target)
    options = backend.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    text = str(module).replace(os.path.abspath(__file__), "make_mutation_goldens.py")
    text = text.replace(os.path.dirname(os.path.abspath(triton.__file__)), "triton")
    params = [n for n in names if n not in consts]
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, name + ".ttir"), "w") as out:
        out.write("// written:" + "".join(f" {params.index(n)}" for n in want) + "\n" + text)


@triton.jit
def inner(ptr, so): tl.store(ptr+so, 1.0)
@triton.jit
def outer(out_ptr, n): inner(out_ptr, n)
go('scalar_nested',outer,dict(out_ptr=P,n='i32'),want=['out_ptr'])
@triton.jit
def std(in0, n, in1, out, B: tl.constexpr):
    i=tl.program_id(0)*B+tl.arange(0,B); m=i<n
    tl.store(out+i, tl.load(in0+i,mask=m)+tl.load(in1+i,mask=m),mask=m)
@triton.jit
def fn2(in0,in1,n,out,B:tl.constexpr): std(in0,n,in1,out,B)
@triton.jit
def ooo(in0,n,in1,out,B:tl.constexpr): fn2(in0,in1,n,out,B)
go('ooo',ooo,dict(in0=P,n='i32',in1=P,out=P),dict(B=4),['out'])
@triton.jit
def hid(p): return p
@triton.jit
def hmulti(x,y,p): return x+y,p
@triton.jit
def one(in0,in1,n,out,B:tl.constexpr):
    i=tl.arange(0,B)
    p=hid(out)
    tl.store(p+i, tl.load(in0+i)+tl.load(in1+i))
go('one_ret',one,dict(in0=P,in1=P,n='i32',out=P),dict(B=4),['out'])
@triton.jit
def multi(in0,in1,n,out,B:tl.constexpr):
    i=tl.arange(0,B)
    v,p=hmulti(tl.load(in0+i),tl.load(in1+i),out)
    tl.store(p+i, v)
go('multi_ret',multi,dict(in0=P,in1=P,n='i32',out=P),dict(B=4),['out'])
@triton.jit
def nested(in0,in1,out,n,B:tl.constexpr):
    i=tl.program_id(0)*B+tl.arange(0,B)
    if tl.program_id(0)==0:
        if tl.program_id(1)==0:
            tl.store(out+i,tl.load(in0+i)+tl.load(in1+i))
    else:
        pass
go('nested_cond',nested,dict(in0=P,in1=P,out=P,n='i32'),dict(B=4),['out'])
@triton.jit
def loops(in0,in1,out,n,B:tl.constexpr):
    i=tl.arange(0,B); a=tl.zeros((B,),tl.float32); b=tl.zeros((B,),tl.float32)
    for k in range(2):
        for j in range(n):
            a+=tl.load(in0+i); b+=tl.load(in1+i)
    tl.store(out+i,a+b)
go('nested_for',loops,dict(in0=P,in1=P,out=P,n='i32'),dict(B=4),['out'])
@triton.jit
def labels(in0,in1,out,n,B:tl.constexpr):
    p=tl.program_id(0)
    if p>1: return
    i=p*B+tl.arange(0,B)
    tl.store(out+i,tl.load(in0+i)+tl.load(in1+i))
go('labels',labels,dict(in0=P,in1=P,out=P,n='i32'),dict(B=4),['out'])
@triton.jit
def four(in0,in1,out,n,B:tl.constexpr):
    i=tl.arange(0,B)
    for k in range(2): tl.store(out+i,tl.load(in0+i)+tl.load(in1+i))
    w=2
    p=out
    while w>0:
        tl.store(p+i,tl.load(in0+i)); p+=1; w-=1
go('four_times',four,dict(in0=P,in1=P,out=P,n='i32'),dict(B=4),['out'])
@triton.jit
def mul2(p,n,B:tl.constexpr):
    i=tl.arange(0,B); tl.store(p+i,2*tl.load(p+i))
@triton.jit
def indir(in0,out,n,B:tl.constexpr):
    i=tl.arange(0,B); mul2(in0,n,B); tl.store(out+i,tl.load(in0+i))
go('indirection',indir,dict(in0=P,out=P,n='i32'),dict(B=4),['in0','out'])
go('mul2',mul2,dict(p=P,n='i32'),dict(B=4),['p'])
@triton.jit
def asm(X,Y,Z,n:tl.constexpr,B:tl.constexpr,PURE:tl.constexpr):
    i=tl.arange(0,B)
    z=tl.inline_asm_elementwise("shf.l.wrap.b32 $0, $1, $2, $3;","=r,r, r, r",[tl.load(X+i),tl.load(Y+i),tl.load(Y+i)],dtype=tl.int32,is_pure=PURE,pack=1)
    tl.store(Z+i,z)
go('asm_pure',asm,dict(X='*i32',Y='*i32',Z='*i32'),dict(n=4,B=4,PURE=True),['Z'])
go('asm_impure',asm,dict(X='*i32',Y='*i32',Z='*i32'),dict(n=4,B=4,PURE=False),['X','Y','Z'])
@triton.jit
def desc(in0,in1,out,M,N,BM:tl.constexpr):
    a=tl.make_tensor_descriptor(in0,[M,N],[N,1],[BM,BM]);b=tl.make_tensor_descriptor(in1,[M,N],[N,1],[BM,BM]);c=tl.make_tensor_descriptor(out,[M,N],[N,1],[BM,BM])
    for k in range(4):
        c.store([k,0],a.load([k,0])+b.load([0,k]))
go('desc',desc,dict(in0=P,in1=P,out=P,M='i32',N='i32'),dict(BM=32),['out'])
