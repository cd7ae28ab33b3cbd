# SPDX-License-Identifier: Apache-2.0
"""What scripts/mutate tries mutants in: the library as a shared object with its test programs, plain and sanitized, and
the programs of the simulator, which have the sources compiled in."""
import hashlib
import json
import multiprocessing.pool
import os
import re
import shlex
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Programs that measure, fill the memory, take minutes, test the tests, or want the library as part of themselves.
FLOORS = {'base', 'kernels', 'tensor', 'store', 'fabric', 'symm', 'coll', 'parts', 'symm_coll', 'functional'}
LEFT_OUT = re.compile(r'test_(bench|coll_large|harness|grad_torch|cuda_(abi|bench|kernels|place|fused\w*|graph\w*)|'
                      r'nccl_(abi|functional_grad_backend|graph_tracing))')
# Objects that programs are linked with besides their own: the software driver, and the stand-in of NCCL over it.
SHARED = ('weft_cuda_model', 'weft_nccl_standin')
SIMULATOR = re.compile(r'test_simulator\w*')
# Programs that are asked as a whole, and how they are called; {weft} is the command.
WHOLE = {'test_fuzz_api': ['--seed', '1', '--calls', '20000'], 'test-command': ['{weft}']}
MARKS = ['-O0', '-g', '-fsanitize-coverage=trace-pc']
OWN_SECTION = ['--rename-section', '.bss=weft_zero']  # as in tests/simulator/CMakeLists.txt

COVER = r'''
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
extern const char __ehdr_start __attribute__((visibility("hidden")));
static unsigned char *map;
static size_t bytes;
__attribute__((constructor(101))) static void open_map(void)
{
    const char *path = getenv("MUTATE_COVER");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0) {
        void *at = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        map = at == MAP_FAILED ? NULL : at;
        bytes = (size_t)status.st_size;
    }
    if (fd >= 0)
        close(fd);
}
void __sanitizer_cov_trace_pc(void)
{
    size_t at = (size_t)((const char *)__builtin_return_address(0) - &__ehdr_start);
    if (map && at < bytes)
        map[at] = 1;
}
'''


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_quietly(command, directory=None):
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError('%s\n%s' % (' '.join(command), done.stdout))
    return done.stdout


def floor_of(path):
    return path.split('/')[1]


def options_of(words):
    """What of a compiler's command line says how the source is to be read and what code is to be made."""
    found = [w for w in words[1:] if w.startswith(('-D', '-I', '-m', '-std', '-f')) and not
             w.startswith(('-fvisibility', '-fPI'))]
    for at, word in enumerate(words):
        if word in ('-include', '-isystem', '-iquote'):
            found += words[at:at + 2]
    return found


class Tree:
    """The library and the test programs, built once."""

    def __init__(self, options, sanitize=''):
        self.name = sanitize.split(',')[0] or 'plain'
        self.place = os.path.join(ROOT, 'build', 'mutate' + ('-' + self.name if sanitize else ''))
        self.flags = ['-O1', '-g0', '-w', '-fvisibility=default', '-fPIC']
        self.sanitize = ['-fsanitize=' + sanitize] if sanitize else []
        self.libraries = ['-lm', '-lpthread', '-ldl']
        self.launcher = ['ccache'] if shutil.which('ccache') else []
        self.floors = FLOORS  # all of them, whatever --floor chooses, so that another choice builds nothing anew
        self.wanted = options.tests
        self.jobs = options.build_jobs
        self.simulators = None if sanitize else Simulators(self)
        os.makedirs(self.place, exist_ok=True)

    def configure(self):
        build = os.path.join(self.place, 'configured')
        run_quietly(['cmake', '-S', ROOT, '-B', build, '-G', 'Unix Makefiles', '-DCMAKE_BUILD_TYPE=RelWithDebInfo',
                     '-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -g', '-DWEFT_NVCC=OFF', '-DCMAKE_C_COMPILER_LAUNCHER=',
                     '-DWEFT_SANITIZE=' + ''.join(self.sanitize).replace('-fsanitize=', '')])
        self.sources, self.programs, self.command_sources, self.harness, shared, linked = {}, {}, [], [], {}, {}
        for entry in json.load(open(os.path.join(build, 'compile_commands.json'))):
            words = shlex.split(entry['command'])
            path = os.path.relpath(entry['file'], ROOT)
            options = [w.replace(os.path.join(build, 'weft'), os.path.join(self.place, 'weft'))
                       for w in options_of(words)]
            target = re.search(r'CMakeFiles/([\w]+)\.dir/', words[words.index('-o') + 1]).group(1)
            if target == 'weft_objects':
                self.sources[path] = (words[0], options)
            elif target == 'weft_command':
                self.command_sources.append((path, words[0], options))
            elif target == 'weft_harness':
                self.harness.append((path, words[0], options))
            elif target in ('weft_met', 'weft_simulator') or SIMULATOR.fullmatch(target):
                if self.simulators:
                    self.simulators.add(target, path, words[0], options)
                    self.simulators.folders[target] = entry['directory']
            elif re.match('test_|soak$', target) and not LEFT_OUT.fullmatch(target):
                self.programs.setdefault(target, []).append((path, words[0], options))
                linked[target] = os.path.join(entry['directory'], 'CMakeFiles', target + '.dir', 'link.txt')
            elif target in SHARED:
                shared.setdefault(target, []).append((path, words[0], options))
        self.programs = {p: s for p, s in self.programs.items() if re.search(self.wanted, p)}
        for name, sources in self.programs.items():
            line = open(linked[name]).read()
            sources += [source for target in SHARED if '/%s.dir/' % target in line for source in shared[target]]
        self.compiler = next(iter(self.sources.values()))[0]

    def has(self, name):
        return name in self.programs or bool(self.simulators and name in self.simulators.mains) or \
            (name == 'test-command' and not self.sanitize)

    def names(self):
        """All programs there are."""
        mains = self.simulators.mains if self.simulators else []
        command = ['test-command'] if not self.sanitize and re.search(self.wanted, 'test-command') else []
        return list(self.programs) + list(mains) + command

    def digest(self):
        total = hashlib.sha256(repr((self.flags, self.sanitize, self.wanted, sorted(self.floors))).encode())
        for folder in ('include', 'src', 'tests', 'tools', 'bench'):
            for where, _, names in sorted(os.walk(os.path.join(ROOT, folder))):
                for name in sorted(names):
                    if name.endswith(('.c', '.h', '.def', '.cmake')):
                        total.update(open(os.path.join(where, name), 'rb').read())
        return total.hexdigest()

    def object_of(self, path, kind='base'):
        return os.path.join(self.place, kind, path.replace('/', '+') + '.o')

    def compile(self, source, path, entry, output, flags):
        compiler, options = entry
        place = os.path.join(ROOT, path)  # whose neighbours a changed copy includes
        near = [] if source == place else ['-iquote', os.path.dirname(place)]
        return self.launcher + [compiler] + options + flags + near + ['-c', source, '-o', output]

    def link_library(self, output, objects):
        return [self.compiler, '-shared', '-Wl,-soname,libweft-mutant.so', '-o', output] + objects + self.sanitize + \
            self.libraries

    def build(self):
        """All objects, the library with and without marks of what is run, and the programs."""
        for kind in ('base', 'cover', 'lib', 'lib-cover', 'programs'):
            os.makedirs(os.path.join(self.place, kind), exist_ok=True)
        self.library = os.path.join(self.place, 'lib', 'libweft-mutant.so')
        self.cover = os.path.join(self.place, 'lib-cover', 'libweft-mutant.so')
        stamp, digest = os.path.join(self.place, 'built'), self.digest()
        if os.path.exists(stamp) and open(stamp).read() == digest:
            return
        say('building %s' % os.path.relpath(self.place, ROOT))
        self.build_all()
        open(stamp, 'w').write(digest)

    def build_all(self):
        work = []
        for path, entry in self.sources.items():
            source = os.path.join(ROOT, path)
            work.append(self.compile(source, path, entry, self.object_of(path), self.flags))
            if floor_of(path) in self.floors and not self.sanitize:
                work.append(self.compile(source, path, entry, self.object_of(path, 'cover'), self.flags + MARKS))
        self.write_calls()
        for target, path, compiler, options in self.program_sources():
            work.append(self.compile(os.path.join(ROOT, path), path, (compiler, options), self.object_of(path, target),
                                     self.flags))
        if self.simulators:
            work += self.simulators.compilations()
        self.in_parallel(work)
        self.write_runtime()
        run_quietly(['ar', 'rcs', self.harness_archive()] + [self.object_of(path, 'harness') for path, _, _ in self.harness])
        run_quietly(self.link_library(self.library, [self.object_of(p) for p in self.sources]))
        if not self.sanitize:
            run_quietly(self.link_library(self.cover, [self.object_of('cover.c')] + self.marked_objects()))
        if self.simulators:
            self.simulators.build()
        links = [self.link(self.program(name), [self.object_of(path, name) for path, _, _ in sources])
                 for name, sources in self.programs.items()]
        links.append(self.link(os.path.join(self.place, 'weft'),
                               [self.object_of(path, 'command') for path, _, _ in self.command_sources]))
        self.in_parallel(links)

    def write_runtime(self):
        runtime = os.path.join(self.place, 'cover.c')
        open(runtime, 'w').write(COVER)
        run_quietly([self.compiler, '-O1', '-fPIC', '-c', runtime, '-o', self.object_of('cover.c')])

    def harness_archive(self):
        return os.path.join(self.place, 'libharness.a')

    def marked_objects(self):
        return [self.object_of(p, 'cover' if floor_of(p) in self.floors else 'base') for p in self.sources]

    def program_sources(self):
        """(folder of the object, source, compiler, options) of the programs, of the command and of the harness."""
        found = [(name,) + source for name, sources in self.programs.items() for source in sources]
        found += [('command',) + source for source in self.command_sources]
        found += [('harness',) + source for source in self.harness]
        for name, _, _, _ in found:
            os.makedirs(os.path.join(self.place, name), exist_ok=True)
        return found

    def write_calls(self):
        """The calls of test_fuzz_api, made from the headers as tests/fuzz/CMakeLists.txt has it."""
        folder = os.path.join(self.place, 'configured', 'tests', 'fuzz')
        headers = os.path.join(folder, 'all_headers')
        if not os.path.exists(headers + '.c'):
            return
        run_quietly(['cc', '-E', '-P', '-I' + os.path.join(ROOT, 'include'), headers + '.c', '-o', headers + '.i'])
        run_quietly([sys.executable, os.path.join(ROOT, 'tests', 'fuzz', 'gen-api'), headers + '.i',
                     os.path.join(folder, 'api_calls.inc')])

    def link(self, output, objects):
        return [self.compiler, '-o', output] + objects + \
            [self.harness_archive(), '-L' + os.path.dirname(self.library), '-l:libweft-mutant.so'] + self.sanitize + self.libraries

    def program(self, name, kind='programs'):
        if name == 'test-command':
            return os.path.join(ROOT, 'tests', name)
        return os.path.join(self.place, kind, name)

    def program_for_cover(self, name):
        is_simulator = self.simulators and name in self.simulators.mains
        return self.program(name, 'programs-cover' if is_simulator else 'programs')

    def marked_by(self, name):
        """The module whose marks say what the program runs."""
        return self.program_for_cover(name) if self.simulators and name in self.simulators.mains else self.cover

    def arguments(self, name, tests):
        return [w.replace('{weft}', os.path.join(self.place, 'weft')) for w in WHOLE.get(name, tests)]

    def in_parallel(self, commands):
        with multiprocessing.pool.ThreadPool(self.jobs) as pool:
            pool.map(run_quietly, commands)


class Simulators:
    """The programs of tests/simulator.  Each is linked with copies of the sources where ranks meet, in which every
    atomic operation is a point, and with the rest of the library as an archive.  test_simulator has ranks as threads;
    the others have processes, whose globals lie in a section of their own, and bugs planted in their copies."""
    ALONE = 'test_simulator'

    def __init__(self, tree):
        self.tree = tree
        self.mains, self.parts, self.copies = {}, {'met': [], 'alone': []}, {'met': {}, 'alone': {}}
        self.folders = {}  # where each program is linked
        text = open(os.path.join(ROOT, 'tests', 'simulator', 'plants.cmake')).read()
        self.plants = {}
        for path, old, new in re.findall(r'^plant\(\d+ (\S+)\s+"((?:[^"\\]|\\.)*)"\s+"((?:[^"\\]|\\.)*)"\)', text, re.M):
            self.plants.setdefault('src/' + path, []).append((old, new))

    def add(self, target, path, compiler, options):
        """One line of compile_commands.json.  A planted copy counts as the source it was made of."""
        source = os.path.join(ROOT, path)
        path = re.sub(r'^.*/simulator/planted/', 'src/', path)
        kind = 'alone' if target == self.ALONE else 'met'
        if path.startswith('tests/') and os.path.basename(path) == target + '.c':
            if re.search(self.tree.wanted, target):
                self.mains[target] = (path, compiler, options)
        elif path.startswith('src/'):
            self.copies[kind][path] = (source, compiler, options)
        else:
            self.parts[kind].append((path, compiler, options))

    def compilations(self):
        tree, work = self.tree, []
        for kind in ('sim-met', 'sim-alone', 'sim-met-cover', 'sim-alone-cover', 'programs-cover'):
            os.makedirs(os.path.join(tree.place, kind), exist_ok=True)
        for kind, copies in self.copies.items():
            for path, (source, compiler, options) in copies.items():
                marks = MARKS if floor_of(path) in tree.floors else []
                for more, flags in (('', []), ('-cover', marks)):
                    work.append(tree.compile(source, path, (compiler, options), tree.object_of(path, 'sim-' + kind + more),
                                             tree.flags + flags))
        for kind, parts in self.parts.items():
            for path, compiler, options in parts:
                work.append(tree.compile(os.path.join(ROOT, path), path, (compiler, options),
                                         tree.object_of(path, 'sim-' + kind), tree.flags))
        for name, (path, compiler, options) in self.mains.items():
            work.append(tree.compile(os.path.join(ROOT, path), path, (compiler, options), tree.object_of(path, 'sim-met'),
                                     tree.flags))
        return work

    def build(self):
        tree = self.tree
        for more, objects in (('', [tree.object_of(p) for p in tree.sources]), ('-cover', tree.marked_objects())):
            archive = self.archive('alone', more)
            if os.path.exists(archive):
                os.remove(archive)
            run_quietly(['ar', 'rcs', archive] + objects)
            run_quietly(['objcopy'] + OWN_SECTION + [archive, self.archive('met', more)])
            self.join_met(os.path.join(tree.place, 'met%s.o' % more), more)
            runtime = [tree.object_of('cover.c')] if more else []
            tree.in_parallel([self.link(name, tree.program(name, 'programs' + more), more, runtime) for name in self.mains])

    def archive(self, kind, more=''):
        return os.path.join(self.tree.place, 'lib%s%s.a' % (kind, more))

    def copies_of(self, kind, more='', instead=None):
        """Objects of the copies; `instead` is (path, object) of one that takes another's place."""
        return [instead[1] if instead and instead[0] == path else self.tree.object_of(path, 'sim-' + kind + more)
                for path in self.copies[kind]]

    def join_met(self, output, more='', instead=None):
        run_quietly(['ld', '-r', '-o', output] + self.copies_of('met', more, instead))
        run_quietly(['objcopy'] + OWN_SECTION + [output])

    def link(self, name, output, more='', added=(), met=None, instead=None):
        """`added` are objects that come before the archive's."""
        tree, kind = self.tree, 'alone' if name == self.ALONE else 'met'
        text = open(os.path.join(self.folders[name], 'CMakeFiles', name + '.dir', 'link.txt')).read()
        wraps = sorted(set(re.findall(r'-Wl,--wrap=[\w,=-]+', text)))
        copies = self.copies_of(kind, more, instead) if kind == 'alone' else \
            [met or os.path.join(tree.place, 'met%s.o' % more)]
        return [tree.compiler, '-pie', '-o', output, tree.object_of(self.mains[name][0], 'sim-met')] + \
            [tree.object_of(path, 'sim-' + kind) for path, _, _ in self.parts[kind]] + copies + list(added) + \
            [tree.harness_archive(), self.archive(kind, more)] + wraps + tree.libraries

    def build_mutant(self, name, mutant, source, plain, where):
        """The program with a mutant, whose text is `source` and whose plain object is `plain`; None if a planted bug
        has no place in it any more."""
        tree, kind = self.tree, 'alone' if name == self.ALONE else 'met'
        output, given = os.path.join(where, name), os.path.join(where, 'sim-' + kind + '.o')
        added, met, instead = [], None, None
        if mutant.path in self.copies[kind]:
            for old, new in self.plants.get(mutant.path, []) if kind == 'met' else []:
                if source.count(old) != 1:
                    return None
                source = source.replace(old, new)
            _, compiler, options = self.copies[kind][mutant.path]
            text = os.path.join(where, 'sim-%s.c' % kind)
            open(text, 'w').write(source)
            run_quietly(tree.compile(text, mutant.path, (compiler, options), given, tree.flags))
            instead = (mutant.path, given)
            if kind == 'met':
                met = os.path.join(where, 'met.o')
                self.join_met(met, '', instead)
        else:
            run_quietly(['objcopy'] + (OWN_SECTION if kind == 'met' else []) + [plain, given])
            added = [given]
        run_quietly(self.link(name, output, '', added, met, instead))
        return output
