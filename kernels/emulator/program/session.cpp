// Settings, the report of what was found, and the ways in which a program ends.
#include "session.h"
#include "../schedule.h"

#include <atomic>
#include <cstdarg>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

extern "C" unsigned hw4_findings(EmuFinding*, unsigned);
extern "C" volatile int hw4_stop;

namespace hw4 {
Settings settings;
Running running;
bool error_unasked, assertion_failed;

std::recursive_mutex& one_at_a_time() {
    static auto& mutex = *new std::recursive_mutex;
    return mutex;
}
std::string text_of(Place place) {
    const char* slash = strrchr(place.file, '/');
    const std::string name = slash ? slash + 1 : place.file;
    return place.line ? name + ":" + std::to_string(place.line) : name;  // a library has no line
}
void say(const char* kind, const char* format, ...) {
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    char text[sizeof EmuFinding::text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    emu::add_finding(kind, text);
}

// ---- Settings: HW4_EMULATE has them as key=value, a line each

static std::string text_in(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}
static void read_settings() {
    const char* given = getenv("HW4_EMULATE");
    if (!given) return;
    std::istringstream lines(given);
    for (std::string line; std::getline(lines, line);) {
        const size_t equals = line.find('=');
        if (equals == std::string::npos) continue;
        const std::string key = line.substr(0, equals), value = line.substr(equals + 1);
        const auto number = [&] { return strtoull(value.c_str(), nullptr, 10); };
        if (key == "watch") settings.watch = number();
        else if (key == "order") settings.order = (emu::Order)number();
        else if (key == "seed") settings.seed = (unsigned)number();
        else if (key == "lanes") settings.lanes = (unsigned)number();
        else if (key == "gpus") settings.gpus = (int)number();
        else if (key == "cc") settings.cc = (int)number();
        else if (key == "multiprocessors") settings.multiprocessors = (int)number();
        else if (key == "shared_limit") settings.shared_limit = number();
        else if (key == "shared_multiprocessor") settings.shared_multiprocessor = number();
        else if (key == "memory") settings.memory = number();
        else if (key == "seconds") settings.seconds = strtod(value.c_str(), nullptr);
        else if (key == "name") settings.name = value;
        else if (key == "architecture") settings.architecture = value;
        else if (key == "shared") {
            std::istringstream words(value);
            emu::Static one;
            words >> one.offset >> one.bytes >> one.owner >> std::ws;
            if (one.owner == "-") one.owner.clear();
            std::getline(words, one.name);
            emu::statics.push_back(one);
        } else if (key == "output") settings.output = value;
        else if (key == "input") settings.input = value;
        else if (key == "record") settings.record = value, emu::record_switches();
        else if (key == "replay") emu::replay_switches(text_in(value), true);
        else if (key == "report") settings.report = value;
        else if (key == "status") settings.status = value;
    }
    unsetenv("HW4_EMULATE");
}

// ---- The report: a line for each finding, each launch, and the end

namespace {
struct Launched {
    std::string name, from;
    dim3 grid, block;
    size_t shared;
    unsigned long times;
};
}
static std::vector<Launched>& launched() {
    static auto& all = *new std::vector<Launched>;
    return all;
}
constexpr size_t MOST_LAUNCHED = 1000;
unsigned count_launch(const char* name, Place from, dim3 g, dim3 b, size_t shared) {
    const std::string place = text_of(from);
    for (Launched& one : launched())
        if (one.from == place && one.name == name && one.shared == shared && !memcmp(&one.grid, &g, sizeof g) &&
            !memcmp(&one.block, &b, sizeof b)) {
            one.times++;
            return (unsigned)(&one - launched().data());
        }
    if (launched().size() == MOST_LAUNCHED) return MOST_LAUNCHED;
    launched().push_back({name, place, g, b, shared, 1});
    return (unsigned)launched().size() - 1;
}
static std::string one_line(std::string text) {
    for (char& c : text)
        if (c == '\n' || c == '\t') c = ' ';
    return text;
}
// The lines of a story, between which Python finds this mark.
static std::string in_one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', '\x1f');
    return one_line(text);
}
static void write_switches() {
    if (settings.record.empty()) return;
    std::ofstream to(settings.record);
    for (const std::string& each : emu::recorded_switches()) to << each << '\n';
}
static bool is_child, reported;
static void report(End end, const std::string& how) {
    if (reported || is_child || settings.report.empty()) return;
    reported = true;
    write_switches();
    const std::string part = settings.report + ".part";
    FILE* to = fopen(part.c_str(), "w");
    if (!to) return;
    static EmuFinding found[128];
    const unsigned n = hw4_findings(found, 128);
    for (unsigned i = 0; i < n; i++)
        fprintf(to, "finding\t%s\t%llx\t%llx\t%u\t%u\t%s\t%s\n", found[i].kind, (unsigned long long)found[i].pc[0],
                (unsigned long long)found[i].pc[1], found[i].times, found[i].block, one_line(found[i].text).c_str(),
                in_one_line(found[i].story).c_str());
    for (const std::string& line : emu::exchanged_accesses()) fprintf(to, "exchanged\t%s\n", line.c_str());
    for (const Launched& one : launched())
        fprintf(to, "launch\t%s\t%s\t%u %u %u\t%u %u %u\t%zu\t%lu\n", one_line(one.name).c_str(), one.from.c_str(),
                one.grid.x, one.grid.y, one.grid.z, one.block.x, one.block.y, one.block.z, one.shared, one.times);
    if (emu::write_counts) emu::write_counts(to);
    static const char* const ends[] = {"ended", "too slow", "hangs", "crash"};
    fprintf(to, "end\t%s\t%s\n", ends[(int)end], one_line(how).c_str());
    fclose(to);
    rename(part.c_str(), settings.report.c_str());
}
static void at_exit() {
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    at_end_of_program();
    fflush(stdout);
    report(End::ENDED, "");
}

// ---- Time: a limit of the processor's

static std::atomic<double> last_event, time_up;
static uint64_t last_events;
static pthread_t runner;  // the host thread whose launch runs
static double processor_seconds() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static std::string launch_text() {
    if (!running.kernel) return "no kernel runs";
    return std::string(running.kernel) + " (" + text_of(running.from) + "), launch " + std::to_string(running.launches) +
           ", has done " + std::to_string(*emu::block_count) + " of its " + std::to_string(running.blocks) + " blocks";
}
[[noreturn]] static void end_now(uintptr_t pc) {
    const double now = processor_seconds();
    char place[40] = "", took[40];
    if (pc) snprintf(place, sizeof place, " at {%#lx}", (unsigned long)(pc - emu::image));
    snprintf(took, sizeof took, "%.0f s", now);
    std::string text;
    // In a launch in which nothing has ended or met for half of the time, nothing ever will.
    const bool hangs = running.kernel && now - last_event > settings.seconds / 2;
    if (!running.kernel) {
        text = "the host's code has not ended after " + std::string(took) + place;
    } else if (hangs) {
        char since[40];
        snprintf(since, sizeof since, "%.0f s", now - last_event);
        text = std::string(running.kernel) + " (" + text_of(running.from) + ") hangs in block " +
               std::to_string(emu::block_of_grid) + ": for " + since + " no thread has ended or come to a barrier";
        if (pc && emu::current != emu::NOBODY) text += "; thread " + std::to_string(emu::current) + " runs" + place;
        text += "; " + emu::where_threads_wait();
    } else {
        text = "too slow for the CPU: after " + std::string(took) + " " + launch_text();
    }
    report(hangs ? End::HANGS : End::TOO_SLOW, text);
    _exit(124);
}
void out_of_time() { end_now(0); }
static void tick(int, siginfo_t*, void* context) {
    const double now = processor_seconds();
    if (emu::events != last_events) last_events = emu::events, last_event = now;
    if (settings.seconds <= 0 || now < settings.seconds) return;
    if (time_up == 0) {
        time_up = now, hw4_stop = 1;
        return;  // between two turns of threads it will be seen
    }
    if (now < time_up + 1) return;
    if (running.kernel && emu::current == emu::NOBODY && !pthread_equal(runner, pthread_self())) {
        pthread_kill(runner, SIGPROF);
        return;
    }
    uintptr_t pc = 0;
#if defined(__x86_64__)
    pc = (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#endif
    // Of a thread that is watched: it may be in the runtime right now.
    end_now(emu::current != emu::NOBODY && emu::last_access ? emu::last_access : pc);
}
void note_runner() { runner = pthread_self(), last_event = processor_seconds(); }

// ---- Crashes

static void crashed(int number, siginfo_t* info, void* context) {
    signal(number, SIG_DFL);
    uintptr_t pc = 0;
#if defined(__x86_64__)
    pc = (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#endif
    const bool memory = number == SIGSEGV || number == SIGBUS;
    char text[300], place[40] = "";
    if (pc && (pc - emu::image) >> 32 == 0) snprintf(place, sizeof place, " at {%#lx}", (unsigned long)(pc - emu::image));
    const char* address = (const char*)info->si_addr;
    const int owner = memory ? emu::owner_of_stack(address) : emu::NOBODY;
    const char* what = number == SIGABRT ? "is aborted"
                       : number == SIGFPE ? "divides by zero" : memory ? "touches memory that is not there" : "crashes";
    if (emu::current == emu::NOBODY) snprintf(text, sizeof text, "the host's code %s%s", what, place);
    else if (owner != emu::NOBODY) snprintf(text, sizeof text, "thread %d needs more than 512 KB of local memory%s",
                                            emu::current, place);
    else snprintf(text, sizeof text, "thread %d of %s %s%s", emu::current, running.kernel ? running.kernel : "?", what, place);
    emu::add_finding("crash", text);  // which has the block
    report(End::CRASHED, emu::current == emu::NOBODY ? text : "block " + std::to_string(emu::block_of_grid) + ", " + text);
    raise(number);
}

// ---- Standard input, and other processes

static ssize_t read_nothing(void*, char*, size_t) {
    say("input", "the program reads standard input, which is empty here: give it a file (--stdin)");
    return 0;
}
static void before_fork() {
    say("processes", "the program starts a process of its own (fork): what that one does is not watched");
}

static void begin_session() {
    read_settings();
    emu::begin_image();
    emu::watching = settings.watch;
    static char stack[128 << 10];
    const stack_t alternate{stack, 0, sizeof stack};
    sigaltstack(&alternate, nullptr);
    struct sigaction action{};
    action.sa_sigaction = crashed, action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(number, &action, nullptr);
    action.sa_sigaction = tick, action.sa_flags = SA_ONSTACK | SA_SIGINFO | SA_RESTART;
    sigaction(SIGPROF, &action, nullptr);
    if (settings.seconds > 0) {
        const itimerval often{{0, 250000}, {0, 250000}};
        setitimer(ITIMER_PROF, &often, nullptr);
    }
    if (!settings.output.empty()) {
        const int file = open(settings.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (file >= 0) dup2(file, 1), close(file);
    }
    if (!settings.status.empty()) {
        const int file = open(settings.status.c_str(), O_RDWR);
        void* shared = file < 0 ? MAP_FAILED : mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared != MAP_FAILED) emu::block_count = (uint64_t*)shared;
        if (file >= 0) close(file);
    }
    if (!settings.input.empty()) {
        const int file = open(settings.input.c_str(), O_RDONLY);
        if (file >= 0) dup2(file, 0), close(file);
    } else if (FILE* nothing = fopencookie(nullptr, "r", {read_nothing, nullptr, nullptr, nullptr})) stdin = nothing;
    pthread_atfork(before_fork, nullptr, [] { is_child = true; });
}
void begin() {
    static const bool begun = (begin_session(), true);
    (void)begun;
}
// Linked last of the runtime and before the program: behind the runtime's own variables, which so live until at_exit is
// over, and before the program's.
static const struct Session {
    Session() { begin(), atexit(at_exit), at_quick_exit(at_exit); }
} session;
}  // namespace hw4

extern "C" void __assert_fail(const char* condition, const char* file, unsigned line, const char*) {
    const std::string from = hw4::text_of({file, (int)line});
    if (emu::current == emu::NOBODY) {
        fprintf(stderr, "%s: assertion failed: %s\n", from.c_str(), condition);
        abort();
    }
    char text[300];
    snprintf(text, sizeof text, "thread %d: assert(%s) at %s fails", emu::current, condition, from.c_str());
    emu::add_finding("assertion", text);
    hw4::assertion_failed = true;
    emu::stop_kernel();
}
