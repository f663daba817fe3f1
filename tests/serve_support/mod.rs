//! Spawns the real server on a free port, and speaks HTTP/1.1 to it over plain sockets.

#![allow(dead_code)] // every test file uses its part

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than anything here takes on a busy machine; only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// A running server.
pub struct Server {
    child: Option<Child>,
    pub address: SocketAddr,
    log: Arc<Mutex<String>>,
    _home: tempfile::TempDir,
}

/// An answer, its body put together.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
    /// The JSON values of a stream of events, `[DONE]` as a text; comments left out.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
    }
}

impl Server {
    /// Starts it with the embedded model and waits until it is ready.
    pub fn start(args: &[&str]) -> Server {
        let server = Server::listening(args, &[]);
        server.ready();
        server
    }

    /// One that runs already, and is not ended with this value.
    pub fn at(address: SocketAddr) -> Server {
        Server { child: None, address, log: Arc::default(), _home: tempfile::tempdir().unwrap() }
    }

    /// Starts it and waits until it listens.
    pub fn listening(args: &[&str], env: &[(&str, &str)]) -> Server {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_hipfire"));
        command.args(["serve", "--port", "0"]).args(args).env_clear().env("HOME", home.path());
        // Options of a test stand over these.
        command.envs([("HIPFIRE_THREADS", "2"), ("HIPFIRE_MAX_SEQ", "2048"), ("HIPFIRE_PREFILL_CHUNK", "64")]);
        command.envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut address = None;
        let mut line = String::new();
        while address.is_none() && lines.read_line(&mut line).unwrap() > 0 {
            address = line.split("listening on http://").nth(1).map(|rest| rest.trim().parse().unwrap());
            log.lock().unwrap().push_str(&line);
            line.clear();
        }
        let address = address.unwrap_or_else(|| panic!("no server: {}", log.lock().unwrap()));
        let kept = log.clone();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Server { child: Some(child), address, log, _home: home }
    }

    /// Waits until `/health` is 200.
    pub fn ready(&self) {
        wait("the server is ready", || self.get("/health").status == 200);
    }

    /// Everything logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// One request on a connection of its own, its answer still to be read.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut socket = self.connect();
        let has = |name: &str| headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !has("host") {
            head += &format!("host: {}\r\n", self.address);
        }
        if !has("content-length") && method == "POST" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            head += &format!("{name}: {value}\r\n");
        }
        socket.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        // A server that refuses may close before it has read everything.
        let _ = socket.write_all(body);
        socket
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        receive(self.send(method, path, headers, body))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([format!("-{name}"), id]).status().unwrap().success());
    }

    /// Waits for the end: the exit code.
    pub fn wait(mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        let mut code = None;
        wait("the server ends", || {
            code = child.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Until `done`, or a panic that says what was waited for.
pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Reads an answer to the end of its connection.
pub fn receive(mut socket: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A server that refused a body may reset the connection behind its answer.
    let _ = socket.read_to_end(&mut bytes);
    let at = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| {
        panic!("no answer: {:?}", String::from_utf8_lossy(&bytes));
    });
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let rest = &bytes[at + 4..];
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Answer { status, body: if chunked { unchunk(rest) } else { rest.to_vec() }, head }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        if size == 0 || rest.len() < at + 2 + size {
            break;
        }
        body.extend_from_slice(&rest[at + 2..at + 2 + size]);
        rest = &rest[at + 4 + size..];
    }
    body
}

/// A short greedy chat.
pub fn chat(user: &str, more: Value) -> Value {
    let mut body = json!({
        "model": "ember",
        "messages": [{"role": "user", "content": user}],
        "temperature": 0,
        "max_tokens": 24,
    });
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    body
}
