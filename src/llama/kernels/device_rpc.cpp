// What libllb-rpc.so has beside device_file.cpp: ggml's backend for the devices of other hosts, and
// what happens to its failures.
//
// ggml ends the process if a server is lost. Its commands run on a thread for each connection, where
// nobody can catch an exception. Here that thread marks the connection as lost and goes on: each of
// its commands then fails at once, and the results that did not come are zeros (scripts/devices.py
// compiles this with zeros for variables that are not set). The functions that the engine calls look
// at the mark afterwards, and throw. Functions that release something never fail.
//
// A connection that was lost stays lost. The next one to the same server is a new endpoint for ggml,
// with devices of its own: HOST:PORT#NUMBER, of which ggml reads the part before the "#".
//
// The sockets are ggml's, and the linker redirects its calls to the functions named `__wrap_...`.
// They limit the time that a host may be silent.

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <condition_variable>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ggml-backend-impl.h"
#include "ggml-cpp.h"
#include "ggml-impl.h"
#include "ggml-rpc.h"
#include "kernels.h"
#include "transport.h"

namespace {

using Clock = std::chrono::steady_clock;

// How long a connection and the first answer may take, and any later answer. A computation of one
// batch may take minutes. A host that is gone is found earlier, by the system's own questions.
constexpr std::chrono::seconds first_limit(10);
constexpr std::chrono::seconds answer_limit(600);
// How often a waiting thread looks whether it should stop.
constexpr int poll_ms = 100;
// llama.cpp's limit for the devices of one model.
constexpr uint32_t max_devices = 16;

// Whether the process, or the server, is ending. Waiting threads then give up.
std::atomic<bool (*)()> should_stop{nullptr};

bool is_stopping() {
    bool (*const asked)() = should_stop;
    return asked && asked();
}

// What went wrong on this thread's last use of a socket. Empty if nothing did.
thread_local char socket_problem[160] = "";

void note_problem(const char * text) {
    std::snprintf(socket_problem, sizeof(socket_problem), "%s", text);
}

// A connection to a server. It lives as long as the process.
class Connection {
  public:
    // The name of the option, "rpc:HOST:PORT".
    const std::string name;
    // ggml's name.
    const std::string endpoint;

    Connection(std::string name, std::string endpoint)
        : name(std::move(name)), endpoint(std::move(endpoint)) {}

    bool is_lost() const { return lost; }

    // Called on the thread of the connection. The server notices that the socket is shut down.
    void lose(int socket, const char * why) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!lost) {
            reason = why;
            lost = true;
        }
        shutdown(socket, SHUT_RDWR);
    }

    // Throws if the connection was lost. src/llama/devices/rpc.rs has a part of the text.
    void check() {
        if (lost) {
            const std::lock_guard<std::mutex> lock(mutex);
            throw std::runtime_error(name + ": the RPC server was lost: " + reason);
        }
    }

    // Notes that a backend has begun something whose failure shows later.
    void begin(ggml_backend_t backend) {
        const std::lock_guard<std::mutex> lock(mutex);
        busy.insert(backend);
    }

    // Whether it had.
    bool end(ggml_backend_t backend) {
        const std::lock_guard<std::mutex> lock(mutex);
        return busy.erase(backend) > 0;
    }

  private:
    std::mutex mutex;
    std::string reason;
    std::set<ggml_backend_t> busy;
    std::atomic<bool> lost{false};
};

// The connection whose functions this thread calls.
thread_local Connection * called = nullptr;

class Call {
  public:
    explicit Call(Connection & connection) { called = &connection; }
    ~Call() { called = outer; }

  private:
    Connection * const outer = called;
};

// The other side of a socket.
struct Peer {
    // NULL for a client of this process.
    Connection * connection;
    bool has_answered;
};

std::mutex peers_mutex;
std::unordered_map<int, Peer> peers;
// The socket that this thread has used last.
thread_local int last_socket = -1;

Peer peer_of(int socket) {
    const std::lock_guard<std::mutex> lock(peers_mutex);
    const auto found = peers.find(socket);
    return found == peers.end() ? Peer{nullptr, true} : found->second;
}

void set_peer(int socket, Peer peer) {
    const std::lock_guard<std::mutex> lock(peers_mutex);
    peers[socket] = peer;
}

// Prepares a socket: no call on it waits, other programs do not inherit it, and the system notices
// within half a minute that the host is gone.
void prepare(int socket) {
    fcntl(socket, F_SETFL, O_NONBLOCK);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    const auto set = [socket](int level, int option, int value) {
        setsockopt(socket, level, option, &value, sizeof(value));
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30 * 1000);
}

// Waits until a call on the socket can go on. False with a problem if it should not.
bool wait_for(int socket, short event, const Peer & peer) {
    // A client may be silent as long as it likes once it has said something.
    const bool is_limited = peer.connection || !peer.has_answered;
    const auto limit = peer.has_answered ? answer_limit : first_limit;
    const auto start = Clock::now();
    while (true) {
        if (is_stopping()) {
            note_problem("the process is ending");
            return false;
        }
        pollfd waiting = {socket, event, 0};
        const int ready = poll(&waiting, 1, poll_ms);
        if (ready > 0) {
            return true;
        }
        if (ready < 0 && errno != EINTR) {
            note_problem(std::strerror(errno));
            return false;
        }
        if (is_limited && Clock::now() - start >= limit) {
            std::snprintf(socket_problem, sizeof(socket_problem),
                "it did not answer within %d seconds%s", static_cast<int>(limit.count()),
                peer.has_answered ? "" : "; it serves one client at a time");
            return false;
        }
    }
}

// Sends or receives by `transfer`.
template <typename Transfer> ssize_t with_limit(int socket, short event, Transfer transfer) {
    last_socket = socket;
    const Peer peer = peer_of(socket);
    while (!peer.connection || !peer.connection->is_lost()) {
        const ssize_t count = transfer();
        if (count > 0) {
            socket_problem[0] = 0;
            if (event == POLLIN && !peer.has_answered) {
                set_peer(socket, {peer.connection, true});
            }
            return count;
        }
        if (count == 0) {
            note_problem("it closed the connection");
            return 0;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(socket, event, peer)) {
                return -1;
            }
        } else if (errno != EINTR) {
            note_problem(std::strerror(errno));
            return -1;
        }
    }
    return -1;
}

// Who hears what the server says, and its last complaint.
void (*listener)(const char * line, void * data) = nullptr;
void * listener_data = nullptr;
char complaint[200] = "";

// In place of printf.
__attribute__((format(printf, 1, 2))) void say(const char * format, ...) {
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    line[std::strcspn(line, "\n")] = 0;
    if (listener) {
        listener(line, listener_data);
    }
}

// In place of fprintf, with the system's reason.
__attribute__((format(printf, 2, 3))) void complain(FILE *, const char * format, ...) {
    const int error = errno;
    char text[120];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    text[std::strcspn(text, "\n")] = 0;
    std::snprintf(complaint, sizeof(complaint), "%s%s%s", text, error ? ": " : "",
        error ? std::strerror(error) : "");
}

// In place of ggml_abort. Returns on the thread of a connection alone.
__attribute__((format(printf, 3, 4))) void on_abort(
    const char * file, int line, const char * format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    text[std::strcspn(text, "\n")] = 0;
    if (called) {
        throw std::runtime_error(called->name + ": the RPC server cannot be used: " +
            (socket_problem[0] ? socket_problem : text));
    }
    if (Connection * const connection = peer_of(last_socket).connection) {
        connection->lose(last_socket,
            socket_problem[0] ? socket_problem : "its answer is not one of llama.cpp's RPC protocol");
        return;
    }
    ggml_abort(file, line, "%s", text);
}

} // namespace

#undef GGML_ABORT
#define GGML_ABORT(...) on_abort(__FILE__, __LINE__, __VA_ARGS__)
#define printf(...) say(__VA_ARGS__)
#define fprintf(...) complain(__VA_ARGS__)
#include "ggml-rpc.cpp"
#undef printf
#undef fprintf

namespace {

std::mutex connections_mutex;
// By ggml's name.
std::unordered_map<std::string, Connection *> connections;

Connection & named(const std::string & endpoint) {
    const std::lock_guard<std::mutex> lock(connections_mutex);
    return *connections.at(endpoint);
}

Connection & connection_of(ggml_backend_dev_t device) {
    return named(static_cast<ggml_backend_rpc_device_context *>(device->context)->endpoint);
}

Connection & connection_of(ggml_backend_t backend) {
    return connection_of(backend->device);
}

Connection & connection_of(ggml_backend_buffer_type_t type) {
    return named(static_cast<ggml_backend_rpc_buffer_type_context *>(type->context)->endpoint);
}

Connection & connection_of(ggml_backend_buffer_t buffer) {
    return connection_of(buffer->buft);
}

// A function of the backend that throws if the server is lost.
template <auto function> struct Checked;

template <typename Result, typename Object, typename... Rest, Result (*function)(Object, Rest...)>
struct Checked<function> {
    static Result call(Object object, Rest... rest) {
        Connection & connection = connection_of(object);
        const Call call(connection);
        connection.check();
        if constexpr (std::is_void_v<Result>) {
            function(object, rest...);
            connection.check();
        } else {
            const Result result = function(object, rest...);
            connection.check();
            return result;
        }
    }
};

// The same for a function whose failure may show later.
template <auto function> struct Begun;

template <typename Result, typename... Rest, Result (*function)(ggml_backend_t, Rest...)>
struct Begun<function> {
    static Result call(ggml_backend_t backend, Rest... rest) {
        connection_of(backend).begin(backend);
        return Checked<function>::call(backend, rest...);
    }
};

// Fails only if something was begun: llama.cpp waits once more in a destructor, where an exception
// would end the process.
void synchronize(ggml_backend_t backend) {
    Connection & connection = connection_of(backend);
    const Call call(connection);
    ggml_backend_rpc_synchronize(backend);
    if (connection.end(backend)) {
        connection.check();
    }
}

void free_backend(ggml_backend_t backend) {
    connection_of(backend).end(backend);
    ggml_backend_rpc_free(backend);
}

void free_event(ggml_backend_dev_t device, ggml_backend_event_t event) {
    const Call call(connection_of(device));
    try {
        ggml_backend_rpc_device_event_free(device, event);
    } catch (...) {
        // Without a connection, only the memory of the event remains.
    }
}

// Replaces the functions of all connections. That which frees a buffer stays: ggml recognizes its
// buffers by it.
void replace_functions() {
    auto & backend = ggml_backend_rpc_interface;
    backend.free = free_backend;
    backend.set_tensor_async = Begun<ggml_backend_rpc_set_tensor_async>::call;
    backend.get_tensor_async = Begun<ggml_backend_rpc_get_tensor_async>::call;
    backend.synchronize = synchronize;
    backend.graph_compute = Begun<ggml_backend_rpc_graph_compute>::call;
    backend.event_record = Begun<ggml_backend_rpc_event_record>::call;
    auto & buffer = ggml_backend_rpc_buffer_interface;
    buffer.get_base = Checked<ggml_backend_rpc_buffer_get_base>::call;
    buffer.init_tensor = Checked<ggml_backend_rpc_buffer_init_tensor>::call;
    buffer.memset_tensor = Checked<ggml_backend_rpc_buffer_memset_tensor>::call;
    buffer.set_tensor = Checked<ggml_backend_rpc_buffer_set_tensor>::call;
    buffer.get_tensor = Checked<ggml_backend_rpc_buffer_get_tensor>::call;
    buffer.cpy_tensor = Checked<ggml_backend_rpc_buffer_cpy_tensor>::call;
    buffer.clear = Checked<ggml_backend_rpc_buffer_clear>::call;
    auto & type = ggml_backend_rpc_buffer_type_interface;
    type.alloc_buffer = Checked<ggml_backend_rpc_buffer_type_alloc_buffer>::call;
    type.get_alloc_size = Checked<ggml_backend_rpc_buffer_type_get_alloc_size>::call;
}

// Names a device after its server, and replaces its functions.
void adopt(ggml_backend_dev_t device, const Connection & connection, size_t index, size_t count) {
    auto & context = *static_cast<ggml_backend_rpc_device_context *>(device->context);
    context.name = connection.name + (count > 1 ? "/" + std::to_string(index) : "");
    context.description = "device " + std::to_string(index) + " of a server of llama.cpp's RPC";
    device->iface.get_memory = Checked<ggml_backend_rpc_device_get_memory>::call;
    device->iface.get_props = Checked<ggml_backend_rpc_device_get_props>::call;
    device->iface.init_backend = Checked<ggml_backend_rpc_device_init>::call;
    device->iface.get_buffer_type = Checked<ggml_backend_rpc_device_get_buffer_type>::call;
    device->iface.event_new = Checked<ggml_backend_rpc_device_event_new>::call;
    device->iface.event_free = free_event;
    device->iface.event_synchronize = Checked<ggml_backend_rpc_device_event_synchronize>::call;
}

// The number of devices of a server, which is asked. Throws if it cannot be used.
uint32_t count_devices(Connection & connection) {
    const Call call(connection);
    const uint32_t count = ggml_backend_rpc_get_device_count(connection.endpoint.c_str());
    connection.check();
    return count;
}

// A server that was connected, with its devices.
struct Server {
    std::string address;
    Connection * connection;
    ggml_backend_reg_t registration;
};

Server connect_to(const std::string & name, const std::string & address) {
    static size_t count = 0;
    auto * const connection =
        new Connection(name, address + "#" + std::to_string(count++));
    {
        const std::lock_guard<std::mutex> lock(connections_mutex);
        connections[connection->endpoint] = connection;
    }
    const uint32_t n_devices = count_devices(*connection);
    const Call call(*connection);
    // One connection for all that follows.
    const auto held = get_dispatcher(connection->endpoint);
    if (n_devices == 0 || n_devices > max_devices) {
        GGML_ABORT("it has %u devices, and 1 to %u can be used", n_devices, max_devices);
    }
    ggml_backend_reg_t const registration =
        ggml_backend_rpc_add_server(connection->endpoint.c_str());
    connection->check();
    if (!registration) {
        GGML_ABORT("it has no devices");
    }
    const size_t n_added = registration->iface.get_device_count(registration);
    for (size_t i = 0; i < n_added; i++) {
        adopt(registration->iface.get_device(registration, i), *connection, i, n_added);
    }
    return {address, connection, registration};
}

// Whether the devices of a server are still there. Throws if it cannot be reached.
bool is_usable(const Server & server, const std::string & address) {
    if (server.address != address || server.connection->is_lost()) {
        return false;
    }
    try {
        const size_t count = server.registration->iface.get_device_count(server.registration);
        return count_devices(*server.connection) == count;
    } catch (...) {
        if (server.connection->is_lost()) {
            return false;
        }
        throw;
    }
}

} // namespace

extern "C" {

// kernels.h describes this function and the next one.
static void * llb_rpc_connect(const char * name, const char * address, bool (*stop)(),
    char * problem, size_t size) {
    static std::mutex mutex;
    static std::unordered_map<std::string, Server> servers;
    const std::lock_guard<std::mutex> lock(mutex);
    should_stop = stop;
    try {
        const auto known = servers.find(name);
        if (known == servers.end() || !is_usable(known->second, address)) {
            servers[name] = connect_to(name, address);
        }
        return servers[name].registration;
    } catch (const std::exception & exception) {
        std::snprintf(problem, size, "%s", exception.what());
    } catch (...) {
        std::snprintf(problem, size, "%s: the RPC server cannot be used", name);
    }
    return nullptr;
}

static bool llb_rpc_serve(const char * address, const char * cache, size_t n_threads,
    void * const * devices, size_t n_devices, bool (*stop)(),
    void (*on_line)(const char * line, void * data), void * data, char * problem, size_t size) {
    should_stop = stop;
    listener = on_line;
    listener_data = data;
    std::snprintf(complaint, sizeof(complaint), "the server has ended");
    std::vector<ggml_backend_dev_t> served;
    for (size_t i = 0; i < n_devices; i++) {
        served.push_back(static_cast<ggml_backend_dev_t>(devices[i]));
    }
    ggml_backend_rpc_start_server(address, cache, n_threads, n_devices, served.data());
    listener = nullptr;
    std::snprintf(problem, size, "%s", complaint);
    return is_stopping();
}

static void * llb_rpc_function(ggml_backend_reg_t, const char * name) {
    const llb_rpc_connect_t connect = llb_rpc_connect;
    const llb_rpc_serve_t serve = llb_rpc_serve;
    if (std::strcmp(name, "llb_rpc_connect") == 0) {
        return reinterpret_cast<void *>(connect);
    }
    if (std::strcmp(name, "llb_rpc_serve") == 0) {
        return reinterpret_cast<void *>(serve);
    }
    return nullptr;
}

// A registration without devices, whose functions are those above.
ggml_backend_reg_t llb_rpc_reg() {
    replace_functions();
    ggml_backend_reg_t const registration = ggml_backend_rpc_reg();
    registration->iface.get_proc_address = llb_rpc_function;
    return registration;
}

int __real_connect(int socket, const sockaddr * address, socklen_t size);
int __wrap_connect(int socket, const sockaddr * address, socklen_t size) {
    prepare(socket);
    const Peer peer = {called, false};
    set_peer(socket, peer);
    socket_problem[0] = 0;
    int error = __real_connect(socket, address, size) == 0 ? 0 : errno;
    if (error == EINPROGRESS && wait_for(socket, POLLOUT, peer)) {
        socklen_t length = sizeof(error);
        getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0) {
        return 0;
    }
    if (!socket_problem[0]) {
        note_problem(std::strerror(error));
    }
    // ggml does not close it.
    close(socket);
    return -1;
}

ssize_t __real_send(int socket, const void * data, size_t size, int flags);
ssize_t __wrap_send(int socket, const void * data, size_t size, int flags) {
    // Without a signal if the other side has closed the connection.
    return with_limit(
        socket, POLLOUT, [&] { return __real_send(socket, data, size, flags | MSG_NOSIGNAL); });
}

ssize_t __real_recv(int socket, void * data, size_t size, int flags);
ssize_t __wrap_recv(int socket, void * data, size_t size, int flags) {
    return with_limit(socket, POLLIN, [&] { return __real_recv(socket, data, size, flags); });
}

int __real_listen(int socket, int backlog);
int __wrap_listen(int socket, int) {
    prepare(socket);
    if (__real_listen(socket, 16) < 0) {
        return -1;
    }
    sockaddr_in own = {};
    socklen_t size = sizeof(own);
    getsockname(socket, reinterpret_cast<sockaddr *>(&own), &size);
    char host[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &own.sin_addr, host, sizeof(host));
    say("listening on %s:%d", host, ntohs(own.sin_port));
    return 0;
}

int __real_accept(int socket, sockaddr * address, socklen_t * size);
int __wrap_accept(int socket, sockaddr * address, socklen_t * size) {
    while (wait_for(socket, POLLIN, {nullptr, true})) {
        const int client = __real_accept(socket, address, size);
        if (client >= 0) {
            prepare(client);
            set_peer(client, {nullptr, false});
            return client;
        }
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) {
            break;
        }
    }
    return -1;
}

// The threads of connections block the host's signals, like llb's.
int __real_pthread_create(
    pthread_t * thread, const pthread_attr_t * attributes, void * (*run)(void *), void * data);
int __wrap_pthread_create(
    pthread_t * thread, const pthread_attr_t * attributes, void * (*run)(void *), void * data) {
    sigset_t blocked;
    sigset_t before;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) {
        sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int result = __real_pthread_create(thread, attributes, run, data);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return result;
}

} // extern "C"
