//! Tests servers of llama.cpp's RPC as devices ("rpc:HOST:PORT"), with the file of `make backend-rpc`.
//! Clients are child processes, because a process opens the file only once. Servers are processes
//! too, because some are killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use llb::ffi;
use llb::llama::{RpcService, serve_rpc};
use serde_json::{Value, json};

use crate::abi::{Chat, Refused, ask, call, scripted_model, take};
use crate::backends::built;
use crate::devices::{CHILD, child_data, has_event, in_child};
use crate::scripted::{TEXT, long_text};

const FILE: &str = "libllb-rpc.so";

/// Runs the test with this name in a child process that finds nothing but the file.
#[track_caller]
fn in_client(name: &str) {
    let built = built().join(FILE);
    if !built.exists() {
        assert!(std::env::var_os("LLB_REQUIRE_ALL").is_none(), "there is no {FILE}");
        eprintln!("SKIPPED: there is no {FILE}; run: make backend-rpc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(&built, folder.path().join(FILE)).unwrap();
    in_child(&format!("rpc::{name}"), &[("LLB_BACKENDS", folder.path())], &json!({}));
}

/// The test that is a server in a child process. It ends with its standard input.
#[test]
fn a_child_serves() {
    extern "C" fn never() -> bool {
        false
    }
    if child_data().is_none() {
        return;
    }
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let service = RpcService { address, n_threads: 1, cache: None };
    let print = &mut |line: &str| {
        if let Some(address) = line.strip_prefix("listening on ") {
            println!("\nADDRESS {address}");
        }
    };
    serve_rpc(&service, &["CPU".to_owned()], never, print).unwrap();
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Server {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["rpc::a_child_serves", "--exact", "--nocapture"]).env(CHILD, "{}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| line.strip_prefix("ADDRESS ").map(str::to_owned));
        let address = address.expect("the server listens").parse().unwrap();
        // What it prints later is read too, so that it never waits.
        thread::spawn(move || lines.for_each(drop));
        Server { child, address }
    }

    fn device(&self) -> String {
        format!("rpc:{}", self.address)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stands between a client and a server. Counts the bytes that the client sends, and can kill the
/// server when they reach a number.
struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<ProxyState>>,
}

struct ProxyState {
    server: Server,
    sent: usize,
    kills_at: Option<usize>,
}

impl Proxy {
    fn start(server: Server) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(ProxyState { server, sent: 0, kills_at: None }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = shared.lock().unwrap().server.address;
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (from_server, to_client) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || forward(from_server, to_client, |_| {}));
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    forward(client, server, |bytes| shared.lock().unwrap().count(bytes));
                });
            }
        });
        Proxy { address, state }
    }

    fn device(&self) -> String {
        format!("rpc:{}", self.address)
    }

    /// The bytes that clients have sent.
    fn sent(&self) -> usize {
        self.state.lock().unwrap().sent
    }

    /// Kills the server when clients have sent this many bytes more.
    fn kill_after(&self, bytes: usize) {
        let mut state = self.state.lock().unwrap();
        state.kills_at = Some(state.sent + bytes);
    }

    fn set_server(&self, server: Server) {
        self.state.lock().unwrap().server = server;
    }
}

impl ProxyState {
    fn count(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.kills_at.is_some_and(|limit| self.sent >= limit) {
            self.kills_at = None;
            self.server.kill();
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, count: impl Fn(usize)) {
    let mut buffer = [0; 4096];
    while let Ok(read) = from.read(&mut buffer) {
        count(read);
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn options(model: &str, devices: Value) -> Value {
    json!({
        "model": scripted_model(model), "n_ctx": 1024, "n_threads": 1, "log": "info",
        "devices": devices,
    })
}

fn open(devices: Value) -> Result<Chat, Refused> {
    Chat::open_with(&options("text.gguf", devices))
}

fn open_long(devices: Value) -> Result<Chat, Refused> {
    Chat::open_with(&options("long.gguf", devices))
}

#[track_caller]
fn replies(chat: &Chat) {
    assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
}

fn long_request() -> Value {
    ask(json!({ "max_tokens": 1000 }))
}

#[test]
fn two_servers_compute_one_model() {
    if child_data().is_none() {
        return in_client("two_servers_compute_one_model");
    }
    let proxies = [Proxy::start(Server::start()), Proxy::start(Server::start())];
    let names = proxies.each_ref().map(Proxy::device);
    let chat = open(json!(names)).unwrap();
    let loaded = proxies.each_ref().map(Proxy::sent);
    replies(&chat);
    for (proxy, loaded) in proxies.iter().zip(loaded) {
        assert!(
            has_event(&chat, "log:info:n_gpu_layers: ", &proxy.device()),
            "{:?}",
            chat.events()
        );
        assert!(proxy.sent() > loaded, "each server computes for the reply");
    }
    // A second chat shares the model, and a second model the connections.
    replies(&open(json!(names)).unwrap());
    replies(&open(json!([names[0]])).unwrap());
    let mut placed = options("text.gguf", json!([names[1]]));
    placed["override_tensor"] = json!([["blk.0.", "CPU"]]);
    replies(&Chat::open_with(&placed).unwrap());
    // Without being named, a server is not used, although its devices are listed.
    let alone = open(json!("auto")).unwrap();
    replies(&alone);
    assert!(!has_event(&alone, "log:", "rpc:"), "{:?}", alone.events());
    let found = take(ffi::llb_backends());
    let devices: Vec<&Value> = found["devices"].as_array().unwrap().iter().collect();
    assert!(devices.iter().any(|device| device["name"] == json!(names[0])), "{found}");
    assert_eq!(found["device_files"][0]["name"], "rpc", "{found}");
    assert_eq!(found["device_files"][0]["usable"], true, "{found}");
    let memory = call(
        ffi::llb_memory,
        &json!({ "model_path": scripted_model("text.gguf"), "n_ctx": 1024, "devices": names }),
    );
    assert_eq!(memory["devices"][1]["name"], json!(names[0]), "{memory}");
    let refused = Chat::open_with(&json!({
        "model": scripted_model("text.gguf"), "devices": names, "split_mode": "tensor",
    }));
    let refused = refused.err().unwrap();
    assert!(refused.message().starts_with("split_mode: "), "{refused:?}");
}

#[test]
fn a_killed_server_fails_the_request() {
    if child_data().is_none() {
        return in_client("a_killed_server_fails_the_request");
    }
    let (stays, proxy) = (Server::start(), Proxy::start(Server::start()));
    let names = json!([stays.device(), proxy.device()]);
    let chat = open_long(names.clone()).unwrap();
    assert_eq!(chat.infer(&long_request())["text"], long_text());
    // What a reply sends whose prompt is cached.
    let before = proxy.sent();
    assert_eq!(chat.infer(&long_request())["text"], long_text());
    let of_reply = proxy.sent() - before;
    let idle = open(json!([proxy.device()])).unwrap();
    proxy.kill_after(of_reply / 2);
    let reply = chat.infer(&long_request());
    assert_eq!(reply["error"]["code"], "INFERENCE_FAILED", "{reply}");
    let message = reply["error"]["message"].as_str().unwrap();
    let lost = format!("{}: the RPC server was lost: ", proxy.device());
    assert!(message.contains(&lost), "{message}");
    // While the server is away, nothing that names it opens.
    let refused = open_long(names.clone()).err().unwrap();
    assert_eq!(refused.code(), "INFERENCE_FAILED", "{refused:?}");
    assert!(refused.message().contains(&proxy.device()), "{refused:?}");
    // The other server, and the processor, are as usable as before.
    replies(&open(json!([stays.device()])).unwrap());
    replies(&open(json!("none")).unwrap());
    // A new server at the same address.
    proxy.set_server(Server::start());
    let next = open_long(names).unwrap();
    assert_eq!(next.infer(&long_request())["text"], long_text());
    // A chat that was idle when its server was killed, and the one that failed.
    let reply = idle.infer(&ask(json!({})));
    assert_eq!(reply["error"]["code"], "INFERENCE_FAILED", "{reply}");
    drop(idle);
    drop(chat);
    assert_eq!(next.infer(&long_request())["text"], long_text());
}

#[test]
fn an_idle_chat_of_a_killed_server_closes() {
    if child_data().is_none() {
        return in_client("an_idle_chat_of_a_killed_server_closes");
    }
    let mut server = Server::start();
    let chat = open(json!([server.device()])).unwrap();
    replies(&chat);
    server.kill();
    drop(chat);
    let refused = open(json!([server.device()])).err().unwrap();
    assert_eq!(refused.code(), "INFERENCE_FAILED", "{refused:?}");
    // The chat is idle when the next create finds the loss.
    let mut server = Server::start();
    let chat = open(json!([server.device()])).unwrap();
    server.kill();
    assert!(open(json!([server.device()])).is_err());
    drop(chat);
    replies(&open(json!("none")).unwrap());
}

#[test]
fn a_server_that_is_killed_during_a_load_fails_the_create() {
    if child_data().is_none() {
        return in_client("a_server_that_is_killed_during_a_load_fails_the_create");
    }
    let proxy = Proxy::start(Server::start());
    // The trial of the first load is not repeated.
    drop(open(json!([proxy.device()])).unwrap());
    let before = proxy.sent();
    let chat = open(json!([proxy.device()])).unwrap();
    let of_load = proxy.sent() - before;
    drop(chat);
    // At all stages of a create.
    for part in [0.05, 0.3, 0.6, 0.9, 0.97] {
        proxy.kill_after((of_load as f64 * part) as usize);
        let refused = open(json!([proxy.device()])).err().unwrap();
        assert_eq!(refused.code(), "INFERENCE_FAILED", "{part}: {refused:?}");
        assert!(refused.message().contains("the RPC server "), "{part}: {refused:?}");
        proxy.set_server(Server::start());
    }
    replies(&open(json!([proxy.device()])).unwrap());
}

#[test]
fn servers_that_cannot_be_used_are_refused() {
    if child_data().is_none() {
        return in_client("servers_that_cannot_be_used_are_refused");
    }
    let check = |device: &str, code: &str, part: &str| {
        let refused = open(json!([device])).err().unwrap();
        assert_eq!(refused.code(), code, "{refused:?}");
        let message = refused.message();
        assert!(message.starts_with("devices[0]: ") && message.contains(device), "{message}");
        assert!(message.contains(part), "{message}");
        assert!(refused.events.last().unwrap().starts_with("create_failure:"), "{refused:?}");
    };
    for device in ["rpc:", "rpc:host", "rpc:127.0.0.1:0", "rpc:127.0.0.1:x"] {
        check(device, "INVALID_REQUEST", "expected \"rpc:HOST:PORT\"");
    }
    check("rpc:[::1]:50052", "INVALID_REQUEST", "the host has no IPv4 address");
    check("rpc:no-such-host.invalid:50052", "INVALID_REQUEST", "the host cannot be found");
    // A port that is bound, and on which nobody listens.
    let bound = Bound::new();
    check(&format!("rpc:127.0.0.1:{}", bound.port), "INFERENCE_FAILED", "Connection refused");
    // One that answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let device = format!("rpc:{}", silent.local_addr().unwrap());
    check(&device, "INFERENCE_FAILED", "it did not answer within 10 seconds");
    // Ones that answer something else.
    let version_1 = [&28_u64.to_le_bytes()[..], &[1; 28]].concat();
    let hello = [&28_u64.to_le_bytes()[..], &[7, 0, 0, 0], &[0; 24]].concat();
    let no_device = [&hello[..], &4_u64.to_le_bytes(), &0_u32.to_le_bytes()].concat();
    let many = [&hello[..], &4_u64.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    let short_count = [&hello[..], &2_u64.to_le_bytes(), &[1, 0]].concat();
    let unusable = "the RPC server cannot be used";
    for (answer, part) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], unusable),
        (&[0xff; 64], unusable),
        (b"", "it closed the connection"),
        (&version_1, "version mismatch"),
        (&hello, "it closed the connection"),
        (&no_device, "it has 0 devices"),
        (&many, "it has 4294967295 devices"),
        (&short_count, "is not one of llama.cpp's RPC protocol"),
    ] {
        check(&format!("rpc:{}", answering(answer.to_vec())), "INFERENCE_FAILED", part);
    }
    replies(&open(json!("auto")).unwrap());
    // SAFETY: the child only calls the library and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = open(json!([device])).err();
        let is_refused = refused.is_some_and(|refused| refused.message().contains("was forked"));
        // SAFETY: takes a number.
        unsafe { libc::_exit(if is_refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the status is valid during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn without_the_file_servers_are_refused() {
    let name = "rpc::without_the_file_servers_are_refused";
    if child_data().is_none() {
        let folder = tempfile::tempdir().unwrap();
        return in_child(name, &[("LLB_BACKENDS", folder.path())], &json!({}));
    }
    let refused = open(json!(["rpc:127.0.0.1:50052"])).err().unwrap();
    // The file may be beside the library, which is the other folder.
    if !built().join("deps").join(FILE).exists() {
        assert_eq!(refused.code(), "INVALID_REQUEST", "{refused:?}");
        assert!(refused.message().contains("needs the file libllb-rpc.so"), "{refused:?}");
    }
}

/// A socket of this process that is bound to a port and does not listen.
struct Bound {
    port: u16,
    socket: libc::c_int,
}

impl Bound {
    fn new() -> Bound {
        // SAFETY: takes numbers.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        assert!(socket >= 0);
        let mut address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
            sin_zero: [0; 8],
        };
        let mut size = size_of_val(&address) as libc::socklen_t;
        let pointer = (&raw mut address).cast::<libc::sockaddr>();
        // SAFETY: the address is valid for its size.
        assert_eq!(unsafe { libc::bind(socket, pointer, size) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::getsockname(socket, pointer, &raw mut size) }, 0);
        Bound { port: u16::from_be(address.sin_port), socket }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: a socket of this object.
        unsafe { libc::close(self.socket) };
    }
}

/// The address of a server that answers each client's first command with these bytes, reads the next
/// one if it has answered, and closes the connection.
fn answering(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut hello = [0; 33];
            let _ = client.read_exact(&mut hello);
            let _ = client.write_all(&answer);
            if !answer.is_empty() {
                let _ = client.read_exact(&mut hello[..9]);
            }
        }
    });
    address
}
