---@meta ckptflow
-- The Lua side of ckptflow, api 1: what plugins, policies and recipes are given. Editors load this
-- file (LuaCATS); ckptflow itself never does, a test holds it against what the engine registers.
--
-- Dimensions, offsets and element numbers count from 0, as in the files; Lua lists count from 1.
-- Nothing here reads an element: a view is dtype, shape and where the elements are.
--
-- "Raises CODE" means an error object (ckptflow.Error). `pcall` does not catch it: it is the user's
-- to see, and the host adds the file that was being read. Wrong arguments and misspelt names are
-- ordinary errors, L_ERROR, with line, traceback and the nearest name there is.
--
-- Beside what is below there are the safe parts of the standard library: assert error ipairs next
-- pairs (of a table: numbers, then strings by their bytes) pcall select setmetatable (no __gc)
-- tonumber tostring type rawequal rawlen, math (no random), string (no dump, no %p), table, utf8.
-- Others, as io, os, load, raise L_DENIED. Scripts have no globals of their own.
-- Limits of one call: 2 s of CPU and 10 us a row (L_LIMIT_CPU), 32 MiB and 1 KiB a row
-- (L_LIMIT_MEM), 1 GiB of decoded JSON and walked keys (E_LIMIT).

--- What a value is: "dict" "list" "tuple" "set" "bytes" "string" "integer" "float" "complex"
--- "boolean" "none" "tensor" "dtype", or the last part of a class's name: "ShardedTensor",
--- "DictConfig"; "ndarray" and "float64" ... for numpy. Of a handle its name ("file"), of other
--- Lua values their type.
---@param x any
---@return string
function class(x) end

--- Number of elements of a shape. Raises E_TYPE for what is no list of integers, E_OVERFLOW.
---@param shape ckptflow.Shape
---@return integer
function numel(shape) end

--- A module of ckptflow, or another format: "ckptflow.torch", "formats.torch-dcp". Nothing else can
--- be required; what is found on the search path shadows what is built in.
---@param name string
---@return table
function require(name) end

---@alias ckptflow.Dtype "F64"|"F32"|"F16"|"BF16"|"I64"|"I32"|"I16"|"I8"|"U64"|"U32"|"U16"|"U8"|"BOOL"|"C128"|"C64"|"C32"|"F8_E4M3"|"F8_E5M2"|"F8_E8M0"|"F8_E4M3FNUZ"|"F8_E5M2FNUZ"
---@alias ckptflow.Shape integer[]|ckptflow.Node
---@alias ckptflow.Role "model"|"optim"|"copy"|"rest"

-- Three kinds of file ----------------------------------------------------------------------------
-- Each returns a table; its name is the file's. An unknown field, or one of another type, is L_ERROR;
-- an `api` higher than the host's is refused by name.

---@class (exact) ckptflow.Format
---@field api 1
---@field about string  one line
---@field roles? { [1]: ckptflow.Role, [2]: string }[]  role and pattern of keys, at most 64: the first that fits gives a row its role, and what `{name}` takes is its name in it (without `{name}`: the key). `*` is one component. What nothing fits is "rest"
---@field detect fun(dir: ckptflow.Dir): integer?, string?  score from 1 to 100 and the reason; nothing: not mine. 80: a mark no other format has; 60: a name; 50: a suffix; below: a last resort. An error means "not mine"; one of `file.root` is shown if no other format fits
---@field files fun(dir: ckptflow.Dir): ckptflow.File[]  what to read, each once; none at all is E_MISSING_FILE
---@field read fun(file: ckptflow.File, out: ckptflow.Out, dir: ckptflow.Dir)  once for each file, perhaps many at once in Lua states of their own; keeps nothing
---@field whole? string[]  paths of files, at most 8, that a whole save has (with "!" in front: has not), as { ".metadata", "!.metadata.tmp" }: where this one lacks something, the newest folder beside it that has them is named. Scripts see nothing of those folders
---@field apart? boolean  the files whose `{rank}` is N say all that rank N holds (no alias, name or shape comes from another's): with --only-rank N no others are read

---@class (exact) ckptflow.Policy
---@field api 1
---@field about string
---@field choose fun(item: ckptflow.Item, holders: integer[], load: table<integer, number>): integer, number?  the holder that keeps it, and what that weighs (default: item.bytes); `load` is what each rank has to carry so far

---@class ckptflow.Item  what a policy is asked about
---@field key string
---@field kind "tensor"|"value"
---@field bytes integer  of this piece
---@field whole_bytes integer  of the whole tensor; 1 for a value

---@class (exact) ckptflow.Recipe
---@field api 1
---@field about string
---@field pieces? boolean  it writes pieces, not whole tensors: with --only-rank they keep their places in the whole (without it what the rank holds becomes a tensor of its own). Then `row.view` raises E_COVERAGE, and `row.shape` is nil where no file says it
---@field options? table<string, boolean|number|string|ckptflow.Option>  a default, or more; max_shard_size becomes --max-shard-size and a line of --help. A name of ckptflow's own options is L_ERROR
---@field plan fun(cat: ckptflow.Selection, plan: ckptflow.Plan, opt: table)  records what to write, returns nothing. When it ends every row must be written or dropped, else L_PLAN names the first that is not

---@class (exact) ckptflow.Option
---@field type? "checkpoint"|"policy"|"string"|"number"|"boolean"  default: that of `default`. A policy (a name or file) arrives loaded, for plan:write; a checkpoint as a selection of its rows, `false` where none is given
---@field default? any
---@field many? boolean  may be given several times; arrives as a list
---@field about? string  for --help

-- Errors ------------------------------------------------------------------------------------------

--- Bad data, a refusal, a limit. `tostring` gives what the command line shows.
---@class ckptflow.Error
---@field code string  "E_COVERAGE"
---@field exit integer  exit status: 4 damaged input, 5 unsafe, 6 script ...
---@field message string
---@field hint? string
---@field file? string  path in the checkpoint
---@field offset? integer  byte in that file or member

-- Reading -----------------------------------------------------------------------------------------

---@class ckptflow.Dir  the checkpoint's folder, or several folders as one. Sub-folders are in it; `#dir` is the number of files
---@operator len: integer
local Dir = {}

--- Is there a file that fits?
--- Patterns: `*` within a name, `**` across folders, `{n}` digits, `{n*}` text without "/", `{n**}`
--- any text. What a placeholder takes is `file.n`; `{rank}` says whose pieces the file holds.
--- name, folder, root, meta, size, kind, walk, refuse are no placeholder names.
---@param pattern string
---@return boolean
function Dir:has(pattern) end

--- Files that fit any of the patterns, in natural order (10 after 9), each with what the first
--- pattern that fits it took. Raises E_NUMBER for a rank beyond 31 bits.
---@param ... string
---@return ckptflow.File[]
function Dir:glob(...) end

--- Links to folders that fit any of the patterns, and where each leads: the path of that folder in
--- the checkpoint, with its "/" ("": the checkpoint's own). Such links are not entered, and files
--- have one path; a link that leads out of the checkpoint is none.
---@param ... string
---@return table<string, string>
function Dir:links(...) end

--- A file by its path. Raises E_MISSING_FILE, or E_PATH if the path leads out of the checkpoint.
---@param path string
---@return ckptflow.File
function Dir:file(path) end

--- Something inside a file, `length` bytes at byte `offset`, that is opened only when it is moved:
--- with dtype and shape a tensor (its archive, npy or raw bytes are held against them then), without
--- them a value. In `read` alone. Raises E_MISSING_FILE, E_PATH, E_NUMBER (negative), E_OVERFLOW,
--- E_TRUNCATED (beyond the end of the file), E_TYPE (a transform that is not known).
---@param path string
---@param offset integer
---@param length integer
---@param what ckptflow.ItemClaim
---@return ckptflow.View|ckptflow.Node
function Dir:item(path, offset, length, what) end

---@class (exact) ckptflow.ItemClaim
---@field dtype? ckptflow.Dtype  with shape, or neither
---@field shape? ckptflow.Shape
---@field name? string  for messages
---@field rank? integer  whose it is; default: the file's that is being read
---@field decode? string[]|ckptflow.Node  transforms: none, or zstd ("stream.zstd/1...")

--- The checkpoint is incomplete or not supported. Raises E_MISSING_FILE, exit 4, or another code.
---@param message string
---@param hint? string  what to do
---@param code? string
function Dir:refuse(message, hint, code) end

--- In `files`: a line for people, on stderr and in the JSON of plans, as which of several saves was
--- taken and why.
---@param text string
function Dir:note(text) end

--- One file. Fields of {placeholders} are integers for `{n}`, else texts; nil where the pattern that
--- found this file has no such placeholder; L_ERROR where no pattern has.
---@class ckptflow.File
---@field name string  path in the checkpoint
---@field folder string  of name, with its "/", or ""
---@field size integer  bytes
---@field rank? integer  from {rank}
---@field kind? "torch"|"npz"|"npy"|"pickle"|"safetensors"|"json"|"text"|"lfs"|"empty"  what it is by its first bytes, whatever its name; nil: not known. Raises where it cannot be opened
---@field root any  the value in it, by its first bytes: torch zip, torch stream, pickle, safetensors and npz (dicts of views), npy (a view), JSON; else its text. Parsed when first asked for, its trees kept within a budget. Raises what is wrong with the file: E_MAGIC, E_TRUNCATED, E_ZIP_*, E_GLOBAL_DENIED ...
---@field meta ckptflow.Node  safetensors' __metadata__: texts by name; else an empty dict. Raises as root
---@field [string] integer|string|nil  what the other placeholders took
local File = {}

--- Leaves and their keys, joined with ".". Dicts that are not empty are entered, lists and tuples
--- where a tensor (also a ShardedTensor, a DTensor) is below; list components count from 0. A leaf is
--- a view or a node, never a bare Lua value, so nothing is lost on the way to `out:value`. A root
--- that is a leaf has the key "". Raises E_DUP_KEY (two leaves of one key), E_DEPTH (200 levels),
--- E_LIMIT (a key over 64 KiB), and what `root` raises.
---@param from? any  a node or bare value; without the argument: the root
---@return fun(): string, ckptflow.Node|ckptflow.View
function File:walk(from) end

--- This file is damaged or not supported. Raises E_LAYOUT, exit 4, or another code, with its name.
---@param message string
---@param hint? string
---@param code? string
function File:refuse(message, hint, code) end

--- A value of a pickle or JSON tree: pure data without methods, so that no key can collide.
--- node[key]: a dict's value (integers as they are); an item of a list, tuple or set, from 1; of an
--- object a string is a field of its state, a number an element of its state if that is a tuple,
--- else an argument. Numbers, texts, booleans, None (nil) and dtypes ("BF16") come out as Lua values,
--- tensors as views, an integer beyond 64 bits as its decimal text, all else as a node.
--- pairs(node) in the file's order, #node; a == b and tostring(node) by value. A cycle is a leaf.
--- A node lives as long as the call it was got in: keeping it is L_ERROR.
---@class ckptflow.Node
---@field [any] any

--- Elements somewhere in the files, in any order; or a sum of such. Lives as long as its call.
---@class ckptflow.View
---@field dtype ckptflow.Dtype
---@field shape integer[]  a fresh list, [] of a scalar; at most 64 dimensions
---@field numel integer
local View = {}

--- Elements from..to-1 of a dimension. Raises E_BOUNDS.
---@param from integer
---@param to integer
---@param dim? integer  default 0
---@return ckptflow.View
function View:slice(from, to, dim) end

--- The same elements, row-major, in another shape; one size may be -1: what is left. Raises E_LAYOUT
--- if the numbers of elements differ, L_PLAN if it would come apart into millions of pieces.
---@param shape ckptflow.Shape
---@return ckptflow.View
function View:reshape(shape) end

--- Dimensions in another order. Raises E_LAYOUT unless each is there once.
---@param dims integer[]
---@return ckptflow.View
function View:permute(dims) end

--- Another element type, to nearest even; "keep": itself. Raises E_DTYPE if there is no such cast,
--- L_PLAN for a cast of what a cast has rounded.
---@param dtype ckptflow.Dtype|"keep"
---@return ckptflow.View
function View:cast(dtype) end

--- Parts of the given sizes along a dimension, which they fill. Raises E_LAYOUT, E_BOUNDS.
---@param sizes ckptflow.Shape
---@param dim? integer  default 0
---@return ckptflow.View ...
function View:split(sizes, dim) end

--- What `read` fills: rows of the catalogue. A key is UTF-8 without NUL (E_UTF8) of at most 64 KiB
--- (E_LIMIT). Whose a piece is follows from where its bytes are. After the last file every tensor
--- must be covered (E_COVERAGE) by pieces that do not overlap (E_OVERLAP); equal pieces are replicas.
--- A dtype or shape other than before, a tensor where a value was: E_META_CONFLICT.
---@class ckptflow.Out
local Out = {}

--- A whole tensor; from several ranks: replicas.
---@param key string
---@param view ckptflow.View
function Out:tensor(key, view) end

--- A box of a tensor, at offsets `at`; its sizes are the view's. Without shape: the declared one,
--- else the hull of all boxes. Raises E_BOUNDS if it sticks out, E_TYPE for numbers of dimensions
--- that differ.
---@param key string
---@param shape ckptflow.Shape?
---@param at ckptflow.Shape
---@param view ckptflow.View
function Out:piece(key, shape, at, view) end

--- The row-major elements from `start` on, as many as the view has, of the tensor, or with `at` and
--- `size` of that box of it (flat parameters of tensor parallel slabs). Raises E_BOUNDS.
---@param key string
---@param shape ckptflow.Shape
---@param start integer
---@param view ckptflow.View  of any shape
---@param at? ckptflow.Shape
---@param size? ckptflow.Shape
function Out:range(key, shape, start, view, at, size) end

--- Anything that is no tensor (a tensor is L_ERROR): a node, or a Lua value, a list of such.
---@param key string
---@param node any
function Out:value(key, node) end

--- There is such a tensor, whoever holds it: names one that is missing altogether. Rows are in the
--- order in which they are first named; without dtype and shape that is all that is said, of a
--- value. Raises E_OVERFLOW.
---@param key string
---@param dtype? ckptflow.Dtype
---@param shape? ckptflow.Shape
function Out:declare(key, dtype, shape) end

--- Role and name of a row, where `roles` cannot tell them from the key. The last call counts.
---@param key string
---@param role ckptflow.Role
---@param name string
function Out:name(key, role, name) end

--- A second name of a row (tied weights). Ignored where the key has a row of its own.
---@param key string
---@param of string
function Out:alias(key, of) end

--- Where the key lies in the tree of its file, if `file.root` does not tell: what a torch file that
--- is written under unchanged names nests by.
---@param key string
---@param path ckptflow.Path
function Out:path(key, path) end

--- What all files of one save share, as the step: E_META_CONFLICT with values, ranks and files if
--- they do not.
---@param key string
---@param value any  nil: this file does not say
function Out:same(key, value) end

--- Whose this file is, by what is inside: of all that `read` says of it, whatever the file's name
--- says (files that were renamed are noted). nil: not known. Raises E_TYPE, E_NUMBER.
---@param rank? integer
function Out:rank(rank) end

--- How many ranks wrote the checkpoint, and whose this file is. A missing one is named
--- (E_MISSING_FILE), a surplus one and one that is there twice too (E_META_CONFLICT). Raises E_TYPE,
--- E_NUMBER for what is no number of ranks.
---@param size? integer  nil: not known
---@param rank? integer  default: file.rank
function Out:world(size, rank) end

--- A line for people, on stderr and in the JSON of plans: what the user should know and no check
--- tells, as why names are missing. The same line of many files is printed once.
---@param text string
function Out:note(text) end

--- So many ranks wrote it together, each piece once (torch's DCP): which of them hold the
--- duplicates that were dropped is inferred. Raises E_NUMBER.
---@param count integer
function Out:writers(count) end

---Which fields of a table of metadata say what: names that the writer gave them.
---@class ckptflow.Items
---@field chunks string of an entry of `tensors` that is a tensor: its boxes; what has none is a value
---@field dtype string of such an entry: its dtype, or with `dtype_number` a tuple that has it
---@field dtype_number? integer its place in that tuple, from 1
---@field shape string of such an entry
---@field chunk_at string of a chunk: its offsets
---@field chunk_size string of a chunk: its sizes
---@field name string of a key of `places`: of which entry it is
---@field at string of a key of `places`: the offsets of the chunk
---@field hint string of a key of `places`: perhaps the chunk's number, from 0
---@field path string of a place: the file, below `folder`
---@field offset string of a place: where in the file the item begins
---@field length string of a place: bytes of it
---@field decode string of a place: a list of transforms, if there are any
---@field folder? string
---@field rank? string a pattern with {rank} that tells from a path whose it is
---@field order? ckptflow.Node a dict whose keys are names in their order; other names follow

---All items of a table of metadata at once, as `dir:item` with `out:piece` and `out:value` would
---file them one by one. Items whose file is missing or too short are lost: E_MISSING_FILE or
---E_BOUNDS in the end, with all that they were of. Raises E_META_CONFLICT (an item where no chunk
---is), E_DUP_KEY (two items of a chunk), E_COVERAGE (a value without an item), E_TYPE, E_NUMBER,
---E_STORAGE_SIZE, E_PATH.
---@param tensors ckptflow.Node
---@param places ckptflow.Node
---@param fields ckptflow.Items
---@return integer? last the highest rank that a path names
function Out:items(tensors, places, fields) end

-- Planning ----------------------------------------------------------------------------------------

--- Rows of the catalogue under names: pairs(sel) gives name, row in the checkpoint's order, #sel
--- counts. Every method gives a new one.
---@class ckptflow.Selection
---@field world? integer  ranks that wrote the checkpoint; nil if one of them alone is read and does not say
---@field rank? integer  the one that is read alone (--only-rank)
---@field format string  the format's name
local Selection = {}

--- Rows of a role, under their names in it. Raises E_DUP_KEY.
---@param role ckptflow.Role
---@return ckptflow.Selection
function Selection:role(role) end

--- Rows whose name fits any of the globs and none that begins with "!" (only such: all but those).
--- `*` takes dots too.
---@param ... string
---@return ckptflow.Selection
function Selection:match(...) end

---@return ckptflow.Selection
function Selection:tensors() end

---@return ckptflow.Selection
function Selection:values() end

--- New names. Raises E_DUP_KEY with both keys if two rows get one name.
---@param fn fun(name: string): string
---@return ckptflow.Selection
function Selection:rename(fn) end

---@param name string
---@return ckptflow.Row?
function Selection:find(name) end

--- A file beside the checkpoint, as its config, or nil: a recipe may read what no format does.
---@param path string
---@return ckptflow.File?
function Selection:file(path) end

--- Keys of dicts (strings, integers), and places of lists, from 0: { 0 }, or of tuples: { 0, "tuple" }.
---@alias ckptflow.Path (string|integer|{ [1]: integer, [2]: "tuple"? })[]

---@class ckptflow.Row
---@field key string  as the checkpoint has it
---@field path? ckptflow.Path  of the key in its file; nil: it is one string, or not known
---@field role ckptflow.Role
---@field name string  in its role
---@field dtype? ckptflow.Dtype  nil: a value
---@field shape? integer[]
---@field view? ckptflow.View  the whole tensor, whatever its pieces
---@field value? any  of the smallest rank that has it
local Row = {}

---@class ckptflow.Piece
---@field rank integer  -1: not known
---@field file string
---@field kind "box"|"range"
---@field at integer[]|integer  offsets of the box; the first element of the range
---@field view ckptflow.View

--- Pieces in the order of the files. A range of a box comes as the boxes it is made of.
---@return fun(): ckptflow.Piece?
function Row:pieces() end

---@class ckptflow.Plan  records; nothing is written while `plan` runs
local Plan = {}

---@class (exact) ckptflow.WriteOptions
---@field as? "safetensors"|"json"|"torch"|"dcp"|"npy"  the writer; default: by the suffix of path (.safetensors .json .pt .pth .bin .ckpt .npy)
---@field max_shard_size? integer|string  bytes, or "5GB", "512MiB": split, with an index; E_USAGE for what is no size
---@field meta? table<string, string|number>  safetensors' __metadata__
---@field dtype? ckptflow.Dtype|"keep"  floating point tensors are cast to it; default: --dtype
---@field keep_dtype? string[]  globs of names that are not cast
---@field ranks? integer  dcp: cut anew for so many, 1 to 65536; a tensor that was cut stays cut in that dimension (flat ones in dimension 0), one that was whole stays whole. Without it pieces, and the bytes of DCP items, stay as they are
---@field policy? any  dcp: who keeps what several ranks hold, as an option of type policy gives it; without it each item stays in its file, or with `ranks` goes to its smallest holder. Raises L_PLAN for an answer that is no holder
---@field nest? fun(name: string): ckptflow.Path  torch, json: where a name goes in the tree of the file; without it a name that was not changed goes where its file had it, another is one key (JSON: each name is one key)

--- A file of the output (dcp: a folder, "" is OUT itself). A selection without tensors writes no
--- tensor file. An npy file holds one tensor, of a dtype that numpy has. JSON and torch files take values that the recipe made, too: a table with names is an
--- object. Raises L_PLAN: no such writer, a writer that cannot hold a value, a path that leads
--- out or is written twice, an option that is not in this version; E_USAGE.
---@param path string
---@param what ckptflow.Entries|ckptflow.Entries[]
---@param options? ckptflow.WriteOptions
function Plan:write(path, what, options) end

---@alias ckptflow.Entries ckptflow.Selection|table<string, ckptflow.View|ckptflow.Row|any>

--- A value with what lies at `path` in it replaced. Raises E_TYPE if nothing does.
---@param node ckptflow.Node
---@param path ckptflow.Path
---@param value any  a list, string, number, boolean, nil (None), node or view
---@return ckptflow.Node
function Plan:replace(node, path, value) end

--- Rows that nothing writes are left out on purpose.
---@param what ckptflow.Selection|ckptflow.Row
---@param why string
function Plan:drop(what, why) end

--- Small files beside those that the format read, or at the top of the checkpoint, byte for byte; never
--- one that the format read, an index, a manifest, or a path that the plan writes.
---@param ... string
function Plan:copy(...) end

--- One after the other along a dimension; other sizes and dtypes are the same. Raises L_PLAN,
--- E_OVERFLOW.
---@param views ckptflow.View[]
---@param dim? integer  default 0
---@return ckptflow.View
function Plan:concat(views, dim) end

--- The weighted sum of floating point views of one shape, computed in F64, in the dtype of the
--- first. Raises E_DTYPE, L_PLAN.
---@param views ckptflow.View[]
---@param weights number[]
---@return ckptflow.View
function Plan:sum(views, weights) end

--- Zeros, which no file holds: for padding.
---@param dtype ckptflow.Dtype
---@param shape ckptflow.Shape
---@return ckptflow.View
function Plan:zeros(dtype, shape) end

--- A line for people, with the plan.
---@param text string
function Plan:note(text) end

--- It cannot be done. Raises L_PLAN, exit 6, or another code.
---@param message string
---@param hint? string
---@param code? string
function Plan:refuse(message, hint, code) end

-- Modules, by `require("ckptflow.NAME")` ----------------------------------------------------------

---@class ckptflow.steps  the folder of a run, with a folder for each step
local steps = {}

--- Steps that the patterns find, newest first. A pattern has {step} and {rank}; of jobs ({job}) that
--- saved the same step the latest is first.
---@param dir ckptflow.Dir
---@param ... string
---@return { step: integer, job: integer, files: ckptflow.File[] }[]
function steps.list(dir, ...) end

--- The newest one with as many files as they say ranks saved it; of several a note says which. Raises
--- E_MISSING_FILE, with what each lacks, if none has.
---@param dir ckptflow.Dir
---@param ... string
---@return { step: integer, job: integer, files: ckptflow.File[] }
function steps.whole(dir, ...) end

---@class ckptflow.torch  what torch.distributed leaves in the file of one rank
local torch = {}

--- Files a leaf under a key, whatever it is: ShardedTensor, DTensor (Shard, Replicate,
--- _StridedShard; others are refused, E_LAYOUT), tensor, value.
---@param out ckptflow.Out
---@param key string
---@param node ckptflow.Node|ckptflow.View
---@param file ckptflow.File  for its refusals
function torch.put(out, key, node, file) end

--- What a ShardedTensor says of the process that saved it: its rank, how many there were; else nil.
---@param node any
---@return integer? rank, integer? world
function torch.process(node) end

--- The rank of the process that saved a DTensor, if its mesh is of all `world` ranks; else nil.
---@param node any
---@param world integer?
---@return integer? rank
function torch.mesh_rank(node, world) end

--- Every leaf of a file, under the key that walk gives it; `out:rank` by its first ShardedTensor, or
--- by its first DTensor over all `world` ranks.
---@param file ckptflow.File
---@param out ckptflow.Out
---@param world integer?
---@return integer? rank, integer? world  world: as that ShardedTensor says
function torch.read(file, out, world) end

---@class ckptflow.flat  many tensors laid end to end in one vector, cut over the ranks
local flat = {}

---@class ckptflow.FlatParam
---@field key string
---@field shape ckptflow.Shape  of the whole tensor
---@field at integer  its first element in the vector
---@field from? integer  the element of the tensor that lies there; default 0
---@field held? integer  how many of its elements lie there; default: all
---@field parts? { from: integer, count: integer, place: integer[], size: integer[] }[]  of a slab: its elements from..from+count-1 are that box of the tensor

--- Gives each parameter its part of `view`, a piece of the vector that begins at element `start`.
--- What lies outside every parameter is padding.
---@param out ckptflow.Out
---@param view ckptflow.View
---@param start integer
---@param params ckptflow.FlatParam[]
---@param as? string  a row's key of a parameter's: "optim.%s.exp_avg"
function flat.cut(out, view, start, params, as) end

---@class ckptflow.names  names of parameters
local names = {}

--- Without the components of wrappers: _orig_mod, _fsdp_wrapped_module, _checkpoint_wrapped_module,
--- _fpw_module, _forward_module; `module` only in front.
---@param name string
---@return string
function names.unwrap(name) end

--- Names by optimizer id, from param_groups that carry param_names; nil without them, and then a
--- note in `out`, if that is given.
---@param groups ckptflow.Node
---@param out? ckptflow.Out
---@return table<any, string>?
function names.of_ids(groups, out) end

--- Names one row, the state of a parameter, by the parameter's id.
---@param out ckptflow.Out
---@param key string
---@param id integer|string
---@param state string
---@param name_of? table<any, string>  what of_ids gave
function names.put_id(out, key, id, state, name_of) end

--- Names the states `prefix .. "state.<id>.<state>"` of an optimizer.state_dict() by their parameter.
---@param out ckptflow.Out
---@param optim ckptflow.Node
---@param prefix string  key of the optimizer, with its "."
function names.put_ids(out, optim, prefix) end

---@class ckptflow.olmo  what OLMo's config.yaml says of the checkpoint beside it
local olmo = {}

--- The kind of sharded checkpoint that config.yaml names: torch_legacy (also where it does not say),
--- torch_new, local, olmo_core; nil without a config.yaml. The second result says it to people.
---@param dir ckptflow.Dir
---@return string?, string?
function olmo.declared(dir) end

--- Raises E_META_CONFLICT if config.yaml names another kind.
---@param dir ckptflow.Dir
---@param kind string
---@param other? string  a second word for it
function olmo.agree(dir, kind, other) end

--- The plain entries of a section of config.yaml's text: numbers, booleans, texts; null is left out.
---@param text string
---@param name string  "model"
---@return table<string, number|boolean|string>
function olmo.section(text, name) end

---@class ckptflow.lone  a checkpoint that is one file under any name
local lone = {}

--- The only file there is, beside texts, if its `kind` is one of these.
---@param dir ckptflow.Dir
---@param ... string
---@return ckptflow.File?
function lone.file(dir, ...) end

--- The files that fit any of the patterns; if none does, the only file, as above.
---@param dir ckptflow.Dir
---@param patterns string[]
---@param ... string
---@return ckptflow.File[]
function lone.files(dir, patterns, ...) end

---@class ckptflow.saves  several saves below one folder
local saves = {}

--- The files of one save: the one that DeepSpeed's `latest`, Megatron's
--- latest_checkpointed_iteration.txt, nanotron's latest.txt or Composer's .symlink names, or that a
--- link (`latest`, latest-rank0.pt, last.ckpt) leads to. Raises E_META_CONFLICT where there are
--- several and none is named, E_MISSING_FILE where another is.
---@param dir ckptflow.Dir
---@param files ckptflow.File[]
---@param of? string  what a file's save is in its name; default: its folder
---@return ckptflow.File[]
function saves.one(dir, files, of) end

--- Is there such a pointer, a file or a link to a folder?
---@param dir ckptflow.Dir
---@param name string  "latest_universal"
---@return boolean
function saves.points(dir, name) end

---@class ckptflow.regex
local regex = {}

--- Does one of these regular expressions of Python match from the beginning on? Groups, counts and
--- look-arounds are an error.
---@param patterns? string[]|ckptflow.Node
---@param name string
---@return boolean
function regex.any(patterns, name) end

---@class ckptflow.tensor_parallel
local tensor_parallel = {}

---@class ckptflow.SlabRule
---@field dim? integer  slabs lie side by side along it; nil: each rank has all of the tensor
---@field widths? integer[][]  along dimension 0: rows of each rank in each part, where a slab is made of parts that lie together in the whole (a gated MLP's halves)
---@field limit? integer  so many rows are tensor, the rest padding (a vocabulary's)

--- Whole shape, and parts for flat.cut, of the slab of one rank; no parts: the slab is the whole.
---@param shapes integer[][]  of the slabs of all ranks
---@param rank integer
---@param rule ckptflow.SlabRule
---@return integer[], table[]?
function tensor_parallel.place(shapes, rank, rule) end

---@class ckptflow.optim  an optimizer as torch.optim has it
local optim = {}

--- The rows that are param_groups or lie in them, and the others.
---@param sel ckptflow.Selection
---@return ckptflow.Selection groups, ckptflow.Selection others
function optim.groups(sel) end

--- { "state", parameter, state ... } of a state "<parameter>.<state>"; an id is a number.
---@param name string
---@param row ckptflow.Row
---@return ckptflow.Path
function optim.state_path(name, row) end

--- { "param_groups", ... } of what `groups` gave.
---@param row ckptflow.Row
---@return ckptflow.Path
function optim.groups_path(row) end

--- param_groups whose `params` are names, where `param_names` tell.
---@param plan ckptflow.Plan
---@param groups ckptflow.Node
---@param unwrap fun(name: string): string
---@return ckptflow.Node
function optim.name_params(plan, groups, unwrap) end

---@class ckptflow.index  the index of sharded Hugging Face files
local index = {}

--- The shards that an index lists, each once. Raises E_JSON, E_MISSING_FILE, E_PATH.
---@param dir ckptflow.Dir
---@param name string
---@return ckptflow.File[]
function index.files(dir, name) end

--- Holds a shard against the index, if there is one. Raises E_META_CONFLICT.
---@param file ckptflow.File
---@param dir ckptflow.Dir
---@param name string
function index.check(file, dir, name) end

--- The files, as they were given. Without an index their names say how many parts there are
--- (x-00002-of-00005): raises E_MISSING_FILE if one is missing.
---@param dir ckptflow.Dir
---@param files ckptflow.File[]
---@return ckptflow.File[]
function index.complete(dir, files) end

---@class ckptflow.views  arrangements of views, exact and lazy; `dim` is 0 if it is not given
local views = {}

--- Views of one shape along a new dimension.
---@param plan ckptflow.Plan
---@param list ckptflow.View[]
---@param dim? integer
---@return ckptflow.View
function views.stack(plan, list, dim) end

--- Views of one shape, taken in turn along a dimension.
---@param plan ckptflow.Plan
---@param list ckptflow.View[]
---@param dim? integer
---@return ckptflow.View
function views.interleave(plan, list, dim) end

--- The way back: n views.
---@param view ckptflow.View
---@param n integer
---@param dim? integer
---@return ckptflow.View[]
function views.deinterleave(view, n, dim) end

--- The corner at the origin; sizes that are not smaller stay.
---@param view ckptflow.View
---@param shape integer[]
---@return ckptflow.View
function views.crop(view, shape) end

--- Zeros behind it until it has this shape.
---@param plan ckptflow.Plan
---@param view ckptflow.View
---@param shape integer[]
---@return ckptflow.View
function views.pad(plan, view, shape) end

--- Their mean, computed in F64, in the dtype of the first.
---@param plan ckptflow.Plan
---@param list ckptflow.View[]
---@return ckptflow.View
function views.mean(plan, list) end

--- A selection's tensors by name, floating point ones in dtype but those that a glob of keep fits.
---@param sel ckptflow.Selection
---@param dtype ckptflow.Dtype
---@param keep? string[]
---@return table<string, ckptflow.View>
function views.cast(sel, dtype, keep) end

---@class ckptflow.lightest  for policies
local lightest = {}

--- The rank of a list with the least load, the first of several: fast, also where hundreds hold an
--- item. The list is `holders`, or one of one's own that stays as it is.
---@param ranks integer[]
---@param load table<integer, number>
---@return integer
function lightest.of(ranks, load) end

---@class ckptflow.json
local json = {}

--- JSON that was found inside a file. Raises E_JSON, E_DUP_KEY, E_UTF8, E_DEPTH, E_NUMBER.
---@param text string
---@return any
function json.decode(text) end

--- The values in a file that `plan:write` made, as they were: name, node. Raises E_JSON.
---@param file ckptflow.File
---@param find fun(name: string): ckptflow.View?  the tensor of a name, for those inside values
---@return fun(): string, ckptflow.Node
function json.values(file, find) end

---@class ckptflow.pickle  pickles inside something else, read as inertly as every pickle
local pickle = {}

--- A pickle that was found in a text. Raises what reading a pickle raises: E_OPCODE, E_TRUNCATED,
--- E_GLOBAL_DENIED ...
---@param bytes string
---@return any
function pickle.decode(bytes) end

--- A pickle whose bytes are the elements of a U8 tensor: read now, for it is a value. In `detect`,
--- `files` and `read`. Raises E_TYPE (another tensor, a compressed one), E_LIMIT (64 MiB), E_ZIP_CRC
--- and what decode raises.
---@param view ckptflow.View
---@return any
function pickle.read(view) end
