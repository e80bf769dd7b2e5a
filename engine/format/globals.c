/* What a pickle may name: the three classes of CLI.md, "What a pickle may name".
 *
 * MODELLED is what the engine understands, with what a call of it gives. PLAIN are the data types
 * of the standard library that checkpoints do hold: kept as opaque values. Any other name of the
 * standard library, and any function of torch or numpy, has no place in a checkpoint. A class is
 * told from a function by its capital. PYTHON are the top-level modules of CPython 2.7 and 3.6 to
 * 3.13 (sys.stdlib_module_names and the library folders), for all platforms.
 */
#include <stdio.h>
#include <string.h>

#include "pickle_vm.h"

/* The same module under another version's name. */
static const struct {
    const char *from, *to; /* a trailing dot: also of all modules below it */
} ALIASES[] = {{"__builtin__", "builtins"},
               {"copy_reg", "copyreg"},
               {"_io", "io"},
               {"_operator", "operator"},
               {"pathlib._local", "pathlib"},
               {"torch.tensor", "torch._tensor"},
               {"numpy._core.", "numpy.core."},
               {"torch.distributed._tensor.", "torch.distributed.tensor."}};

static const struct {
    const char *module, *names;
    cf_model model;
} MODELLED[] = {
    {"builtins",
     "Ellipsis NotImplemented bool float int long object str unicode range slice xrange",
     CF_CALL_OBJECT},
    {"builtins", "dict", CF_CALL_DICT},
    {"builtins", "list", CF_CALL_LIST},
    {"builtins", "tuple", CF_CALL_TUPLE},
    {"builtins", "set frozenset", CF_CALL_SET},
    {"builtins", "bytes bytearray", CF_CALL_BYTES},
    {"builtins", "complex", CF_CALL_COMPLEX},
    {"builtins", "getattr", CF_CALL_GETATTR},
    {"builtins", "type", CF_CALL_TYPE},
    {"operator", "getitem", CF_CALL_GETITEM},
    {"operator", "or_", CF_CALL_FLAGS},
    {"_codecs", "encode", CF_CALL_ENCODE},
    {"copyreg", "_reconstructor", CF_CALL_RECONSTRUCTOR},
    {"copyreg", "__newobj__", CF_CALL_NEWOBJ},
    {"collections", "Counter OrderedDict defaultdict", CF_CALL_DICT},
    {"pathlib", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath", CF_CALL_PATH},
    {"datetime", "date datetime time timedelta timezone", CF_CALL_OBJECT},

    {"numpy",
     "bool bool_ bytes_ clongdouble complex128 complex64 datetime64 dtype float16 float32 float64 "
     "generic int16 int32 int64 int8 intc intp longdouble longlong matrix memmap ndarray object_ "
     "poly1d recarray record str_ timedelta64 uint uint16 uint32 uint64 uint8 uintc uintp "
     "ulonglong void",
     CF_CALL_OBJECT},
    {"numpy.rec", "recarray record", CF_CALL_OBJECT},
    {"numpy.ma.core", "_mareconstruct", CF_CALL_OBJECT},
    {"numpy.core.multiarray", "_reconstruct", CF_CALL_ARRAY},
    {"numpy.core.multiarray", "scalar", CF_CALL_SCALAR},
    {"numpy.core.numeric", "_frombuffer", CF_CALL_FROMBUFFER},
    {"numpy.random", "__RandomState_ctor", CF_CALL_OBJECT},
    {"numpy.random._pickle", "__bit_generator_ctor __generator_ctor __randomstate_ctor",
     CF_CALL_OBJECT},
    {"numpy.random.bit_generator",
     "__pyx_unpickle_SeedSequence __pyx_unpickle_SeedlessSeedSequence", CF_CALL_OBJECT},

    {"torch", "Size", CF_CALL_TUPLE},
    {"torch", "Generator Tensor UntypedStorage device dtype finfo iinfo layout memory_format",
     CF_CALL_OBJECT},
    {"torch", /* dtypes without a safetensors name */
     "bits16 bits1x8 bits2x4 bits4x2 bits8 float4_e2m1fn_x2 int1 int2 int3 int4 int5 int6 int7 "
     "qint32 qint8 quint2x4 quint4x2 quint8 uint1 uint2 uint3 uint4 uint5 uint6 uint7",
     CF_CALL_OBJECT},
    {"torch", /* layouts, memory formats, quantisation schemes */
     "_mkldnn jagged sparse_bsc sparse_bsr sparse_coo sparse_csc sparse_csr strided "
     "channels_last channels_last_3d contiguous_format preserve_format per_channel_affine "
     "per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine "
     "per_tensor_symmetric",
     CF_CALL_OBJECT},
    {"torch.storage", "TypedStorage UntypedStorage _TypedStorage", CF_CALL_OBJECT},
    {"torch._utils", "_rebuild_tensor _rebuild_tensor_v2", CF_CALL_TENSOR},
    {"torch._utils", "_rebuild_tensor_v3", CF_CALL_TENSOR_V3},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", CF_CALL_META},
    {"torch._utils", "_rebuild_parameter _rebuild_parameter_with_state", CF_CALL_PARAMETER},
    {"torch._utils", "_rebuild_wrapper_subclass", CF_CALL_WRAPPER},
    {"torch._utils", /* tensors that are no view of one storage: opaque */
     "_rebuild_nested_tensor _rebuild_qtensor _rebuild_sparse_csr_tensor _rebuild_sparse_tensor",
     CF_CALL_OBJECT},
    {"torch._utils",
     "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy _rebuild_xla_tensor",
     CF_CALL_FROM_DEVICE},
    {"torch._tensor", "_rebuild_from_type _rebuild_from_type_v2", CF_CALL_FROM_TYPE},
    {"torch.nn.parameter", "Buffer Parameter", CF_CALL_PARAMETER},
    {"torch.nn.backends.thnn", "_get_thnn_function_backend", CF_CALL_OBJECT},
    {"torch.serialization", "_get_layout", CF_CALL_LAYOUT},
    {"torch.jit._pickle",
     "build_boollist build_doublelist build_intlist build_tensorlist restore_type_tag",
     CF_CALL_FIRST},
    {"torch.torch_version", "TorchVersion", CF_CALL_OBJECT},
    {"torch.distributed._mesh_layout", "_FlatLayout _MeshLayout", CF_CALL_OBJECT},
    {"torch.distributed._shard.metadata", "ShardMetadata", CF_CALL_OBJECT},
    {"torch.distributed._shard.sharded_tensor.api", "ShardedTensor ShardedTensor.ProcessGroupState",
     CF_CALL_OBJECT},
    {"torch.distributed._shard.sharded_tensor.metadata",
     "MEM_FORMAT_ENCODING ShardedTensorMetadata TensorProperties", CF_CALL_OBJECT},
    {"torch.distributed._shard.sharded_tensor.shard", "Shard", CF_CALL_OBJECT},
    {"torch.distributed._shard.sharding_spec.api", "EnumerableShardingSpec", CF_CALL_OBJECT},
    {"torch.distributed._shard.sharding_spec.chunk_sharding_spec", "ChunkShardingSpec",
     CF_CALL_OBJECT},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", CF_CALL_OBJECT},
    {"torch.distributed.checkpoint.metadata",
     "BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex StorageMeta "
     "TensorProperties TensorStorageMetadata _MEM_FORMAT_ENCODING",
     CF_CALL_OBJECT},
    {"torch.distributed.checkpoint.planner", "SavePlan TensorWriteData WriteItem WriteItemType",
     CF_CALL_OBJECT},
    {"torch.distributed.device_mesh", "DeviceMesh", CF_CALL_OBJECT},
    {"torch.distributed.fsdp._flat_param", "_ShardParamInfo", CF_CALL_OBJECT},
    {"torch.distributed.fsdp.flat_param", "_ShardParamInfo", CF_CALL_OBJECT},
    {"torch.distributed.remote_device", "_remote_device", CF_CALL_OBJECT},
    {"torch.distributed.tensor", "DTensor", CF_CALL_OBJECT},
    {"torch.distributed.tensor._api", "DTensor", CF_CALL_OBJECT},
    {"torch.distributed.tensor.api", "DTensor", CF_CALL_OBJECT},
    {"torch.distributed.tensor._dtensor_spec", "DTensorSpec ShardOrderEntry TensorMeta",
     CF_CALL_OBJECT},
    {"torch.distributed.tensor.placement_types",
     "DTensorSpec Partial Replicate Shard TensorMeta _Partial _StridedShard", CF_CALL_OBJECT},
};

static const struct {
    const char *module, *names;
} PLAIN[] = {
    {"argparse", "Namespace"},
    {"array", "_array_reconstructor array"},
    {"collections", "ChainMap UserDict UserList UserString deque"},
    {"decimal", "Decimal"},
    {"fractions", "Fraction"},
    {"functools", "partial"},
    {"io", "BytesIO StringIO"},
    {"random", "Random"},
    {"time", "struct_time"},
    {"types", "GenericAlias SimpleNamespace"},
    {"typing", "Any Callable ClassVar Dict Final FrozenSet Generic Iterable Iterator List Literal "
               "Mapping NamedTuple Optional Sequence Set Tuple Type TypeVar Union"},
    {"uuid", "SafeUUID UUID"},
    {"zoneinfo", "ZoneInfo"},
};

static const char PYTHON[] =
    "BaseHTTPServer Bastion CDROM CGIHTTPServer ConfigParser Cookie DLFCN DocXMLRPCServer "
    "HTMLParser IN MimeWriter Queue STROPTS ScrolledText SimpleHTTPServer SimpleXMLRPCServer "
    "SocketServer StringIO TYPES Tkinter UserDict UserList UserString _LWPCookieJar "
    "_MozillaCookieJar __builtin__ __future__ __hello__ __phello__ _abc _abcoll _aix_support "
    "_android_support _apple_support _ast _asyncio _bisect _blake2 _bootlocale _bootsubprocess "
    "_bz2 _codecs _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw "
    "_collections _collections_abc _colorize _compat_pickle _compression _contextvars _crypt "
    "_csv _ctypes _curses _curses_panel _datetime _dbm _decimal _dummy_thread _elementtree "
    "_frozen_importlib _frozen_importlib_external _functools _gdbm _hashlib _heapq _hotshot "
    "_imp _interpchannels _interpqueues _interpreters _io _ios_support _json _locale _lsprof "
    "_lzma _markupbase _md5 _msi _multibytecodec _multiprocessing _opcode _opcode_metadata "
    "_operator _osx_support _overlapped _peg_parser _pickle _posixshmem _posixsubprocess "
    "_py_abc _pydatetime _pydecimal _pyio _pylong _pyrepl _queue _random _scproxy _sha _sha1 "
    "_sha2 _sha256 _sha3 _sha512 _signal _sitebuiltins _socket _sqlite3 _sre _ssl _stat "
    "_statistics _string _strptime _struct _subprocess _suggestions _symtable _sysconfig "
    "_sysconfigdata _thread _threading_local _tkinter _tokenize _tracemalloc _typing _uuid "
    "_warnings _weakref _weakrefset _winapi _winreg _wmi _xxinterpchannels _xxsubinterpreters "
    "_zoneinfo abc aifc antigravity anydbm argparse array ast asynchat asyncio asyncore atexit "
    "audiodev audioop base64 bdb binascii binhex bisect bsddb builtins bz2 cPickle cProfile "
    "cStringIO calendar ce cgi cgitb chunk cmath cmd code codecs codeop collections colorsys "
    "commands compileall compiler concurrent configparser contextlib contextvars cookielib copy "
    "copy_reg copyreg crypt csv ctypes curses dataclasses datetime dbhash dbm decimal difflib "
    "dircache dis distutils dl doctest dumbdbm dummy_thread dummy_threading email encodings "
    "ensurepip enum errno exceptions faulthandler fcntl filecmp fileinput fnmatch formatter "
    "fpformat fractions ftplib functools future_builtins gc genericpath getopt getpass gettext "
    "glob gopherlib graphlib grp gzip hashlib heapq hmac hotshot html htmlentitydefs htmllib "
    "http httplib idlelib ihooks imageop imaplib imghdr imp importlib imputil inspect io "
    "ipaddress itertools json keyword lib2to3 linecache linuxaudiodev locale logging lzma "
    "macpath macurl2path mailbox mailcap markupbase marshal math md5 mhlib mimetools mimetypes "
    "mimify mmap modulefinder msilib msvcrt multifile multiprocessing mutex netrc new nis "
    "nntplib nt ntpath nturl2path numbers opcode operator optparse os os2 os2emxpath "
    "ossaudiodev parser pathlib pdb pickle pickletools pipes pkgutil platform plistlib popen2 "
    "poplib posix posixfile posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc "
    "pydoc_data pyexpat queue quopri random re readline repr reprlib resource rexec rfc822 "
    "rgbimg riscos rlcompleter robotparser runpy sched secrets select selectors sets sgmllib "
    "sha shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 "
    "sre sre_compile sre_constants sre_parse ssl stat statistics statvfs string stringold "
    "stringprep strop struct subprocess sunau sunaudio symbol symtable sys sysconfig syslog "
    "tabnanny tarfile telnetlib tempfile termios test textwrap this thread threading time "
    "timeit tkMessageBox tkinter toaiff token tokenize tomllib trace traceback tracemalloc tty "
    "turtle turtledemo types typing unicodedata unittest urllib urllib2 urlparse user uu uuid "
    "venv warnings wave weakref webbrowser whichdb winreg winsound wsgiref xdrlib xml xmllib "
    "xmlrpc xmlrpclib zipapp zipfile zipimport zlib zoneinfo";

/* Is the word among the words? */
static bool lists(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
    return false;
}

/* One or more identifiers with dots between them; letters beyond ASCII are fine. */
static bool is_path(const char *name)
{
    bool first = true;
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        const bool letter =
            c == '_' || c >= 0x80 || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (c == '.' ? first : !letter && (first || c < '0' || c > '9')) return false;
        first = c == '.';
    }
    return !first;
}

/* Is every part of the path named as a class is: Linear, _StridedShard? */
static bool is_class(const char *name)
{
    for (; name; name = strchr(name, '.')) {
        name += *name == '.';
        const char c = name[*name == '_'];
        if (c < 'A' || c > 'Z') return false;
    }
    return true;
}

static const char *without_alias(const char *module, char *room, size_t size)
{
    for (size_t i = 0; i < sizeof ALIASES / sizeof *ALIASES; i++) {
        const char *from = ALIASES[i].from;
        const size_t n = strlen(from);
        if (strncmp(module, from, n) != 0 || (from[n - 1] != '.' && module[n])) continue;
        snprintf(room, size, "%s%s", ALIASES[i].to, module + n);
        return room;
    }
    return module;
}

cf_family cf_name_family(const char *module)
{
    char top[32];
    const size_t n = strcspn(module, ".");
    if (n >= sizeof top) return CF_OTHERS;
    memcpy(top, module, n);
    top[n] = '\0';
    if (strcmp(top, "torch") == 0) return CF_TORCH;
    if (strcmp(top, "numpy") == 0) return CF_NUMPY;
    return lists(PYTHON, top) ? CF_PYTHON : CF_OTHERS;
}

cf_trust cf_name_find(const char *module, const char *name, cf_model *model)
{
    char room[128];
    *model = CF_CALL_OBJECT;
    if (!is_path(module) || !is_path(name)) return CF_FORBIDDEN;
    module = without_alias(module, room, sizeof room);
    for (size_t i = 0; i < sizeof MODELLED / sizeof *MODELLED; i++) {
        if (strcmp(module, MODELLED[i].module) != 0 || !lists(MODELLED[i].names, name)) continue;
        *model = MODELLED[i].model;
        return CF_MODELLED;
    }
    for (size_t i = 0; i < sizeof PLAIN / sizeof *PLAIN; i++)
        if (strcmp(module, PLAIN[i].module) == 0 && lists(PLAIN[i].names, name)) return CF_FOREIGN;
    const cf_family family = cf_name_family(module);
    if (family == CF_PYTHON) return CF_FORBIDDEN;
    if (family == CF_TORCH &&
        (cf_dtype_of_storage(name, strlen(name)) ||
         (strcmp(module, "torch") == 0 && cf_dtype_of_torch(name, strlen(name)))))
        return CF_MODELLED;
    if (family == CF_OTHERS && !strchr(name, '.')) return CF_FOREIGN;
    return is_class(name) ? CF_FOREIGN : CF_FORBIDDEN;
}

cf_trust cf_global_trust(const char *module, const char *name)
{
    cf_model model;
    return cf_name_find(module, name, &model);
}
