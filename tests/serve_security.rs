//! Who may ask: the key, the address, the host, the origin, and limits on what a client may send and how slowly.

mod serve_support;

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use serve_support::{Server, chat, receive};

const CHAT: &str = "/v1/chat/completions";
const JSON: (&str, &str) = ("content-type", "application/json");

fn body() -> Vec<u8> {
    chat("Hello!", json!({"max_tokens": 1})).to_string().into_bytes()
}

#[test]
fn an_address_that_others_reach_needs_a_key_before_anything_listens() {
    for host in ["0.0.0.0", "::"] {
        let output = Command::new(env!("CARGO_BIN_EXE_hipfire"))
            .args(["serve", "--port", "0", "--host", host])
            .env_clear()
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("--api-key") && !told.contains("listening"), "{told}");
    }
    let server = Server::listening(&["--host", "0.0.0.0"], &[("HIPFIRE_API_KEY", "sesame")]);
    let address = format!("127.0.0.1:{}", server.address.port());
    server.ready();
    assert_eq!(server.request("GET", "/v1/models", &[("host", &address)], b"").status, 401);
}

#[test]
fn every_route_but_health_wants_the_key_in_either_style() {
    let server = Server::listening(&[], &[("HIPFIRE_API_KEY", "sesame")]);
    server.ready();
    let routes = [
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/props"),
        ("GET", "/slots"),
        ("POST", CHAT),
        ("POST", "/v1/completions"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/messages"),
        ("POST", "/tokenize"),
        ("GET", "/nothing"),
    ];
    for (method, path) in routes {
        for shown in [
            None,
            Some(("authorization", "Bearer sesam")),
            Some(("x-api-key", "sesame1")),
            Some(("authorization", "Basic sesame")),
        ] {
            let headers: Vec<_> = shown.into_iter().chain([JSON]).collect();
            let answer = server.request(method, path, &headers, b"{}");
            assert_eq!(answer.status, 401, "{method} {path} {shown:?}: {}", answer.text());
            assert!(answer.header("www-authenticate").is_some());
            let kind = answer.json()["error"]["type"].clone();
            assert_eq!(kind, "authentication_error");
        }
    }
    for shown in [("authorization", "Bearer sesame"), ("authorization", "bearer sesame"), ("x-api-key", "sesame")] {
        assert_eq!(server.request("POST", CHAT, &[shown, JSON], &body()).status, 200, "{shown:?}");
    }
    assert!(!server.log().contains("sesame"), "a key is never logged");
    let messages = server.post("/v1/messages", &json!({}));
    assert_eq!((messages.status, &messages.json()["type"]), (401, &json!("error")), "in Anthropic's shape");
}

#[test]
fn a_secret_is_not_printed_with_the_settings() {
    let output = Command::new(env!("CARGO_BIN_EXE_hipfire"))
        .args(["serve", "--print-config"])
        .env_clear()
        .env("HIPFIRE_API_KEY", "sesame")
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("api-key is set") && !shown.contains("sesame"), "{shown}");
    let help = Command::new(env!("CARGO_BIN_EXE_hipfire"))
        .args(["serve", "--help"])
        .env_clear()
        .env("HIPFIRE_API_KEY", "sesame")
        .output()
        .unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains("sesame"));
}

#[test]
fn another_name_for_this_machine_is_refused_unless_there_is_a_key() {
    let open = Server::start(&[]);
    for host in ["evil.example", "evil.example:11435", "127.0.0.1.evil.example", "", "10.0.0.1", "[::2]:80", "a b"] {
        let answer = match host {
            "" => {
                let mut socket = open.connect();
                socket.write_all(b"GET /v1/models HTTP/1.0\r\n\r\n").unwrap();
                receive(socket)
            }
            host => open.request("GET", "/v1/models", &[("host", host)], b""),
        };
        assert_eq!(answer.status, 403, "{host}: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "host_not_allowed");
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.1:99", "[::1]:80"] {
        assert_eq!(open.request("GET", "/v1/models", &[("host", host)], b"").status, 200, "{host}");
    }
    let keyed = Server::listening(&[], &[("HIPFIRE_API_KEY", "sesame")]);
    keyed.ready();
    let headers = [("host", "box.example"), ("x-api-key", "sesame")];
    assert_eq!(keyed.request("GET", "/v1/models", &headers, b"").status, 200);
}

#[test]
fn pages_of_other_sites_get_403_unless_their_origin_is_listed() {
    let server = Server::start(&["--cors-origin", "https://good.example"]);
    let from = |origin: &str| server.request("POST", CHAT, &[("origin", origin), JSON], &body());
    for origin in [
        "https://evil.example",
        "null",
        "http://good.example",
        "https://good.example.evil.example",
        "http://127.0.0.1:1",
    ] {
        let answer = from(origin);
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (403, &json!("origin_not_allowed")), "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}");
    }
    let good = from("https://good.example");
    assert_eq!((good.status, good.header("access-control-allow-origin")), (200, Some("https://good.example")));
    assert_eq!(from(&format!("http://{}", server.address)).status, 200, "the server's own page");
    let asked = [("origin", "https://good.example"), ("access-control-request-method", "POST")];
    let allowed = server.request("OPTIONS", CHAT, &asked, b"");
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://good.example"), "{}", allowed.head);

    let closed = Server::start(&[]);
    let answer = closed.request("OPTIONS", CHAT, &asked, b"");
    assert_eq!(answer.header("access-control-allow-origin"), None, "{}", answer.head);
}

#[test]
fn heads_and_bodies_that_are_too_large_or_too_slow_end_and_others_are_served_meanwhile() {
    let server = Server::start(&[]);
    let long = "x".repeat(100_000);
    let answer = server.request("GET", "/v1/models", &[("x-long", &long)], b"");
    assert_eq!(answer.status, 431);

    let mut head = server.connect();
    head.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    let slow = server.send("POST", CHAT, &[JSON, ("content-length", "1000")], b"{");
    let began = Instant::now();
    assert_eq!(server.request("POST", CHAT, &[JSON], &body()).status, 200, "nobody waits for the slow ones");
    let answer = receive(slow);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (408, &Value::from("body_timeout")));
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut head, &mut rest).ok();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{:?}", String::from_utf8_lossy(&rest));
    assert!(began.elapsed() < Duration::from_secs(90));
}

#[test]
fn bytes_that_are_no_http_close_the_connection_and_nothing_else() {
    let server = Server::start(&[]);
    for junk in [&b"\x16\x03\x01\x02\x00"[..], b"GET / HTTP/9.9\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"GET  \r\n\r\n"] {
        let mut socket = server.connect();
        socket.write_all(junk).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut socket, &mut rest).ok();
        assert!(
            rest.is_empty()
                || rest.starts_with(b"HTTP/1.1 4")
                || rest.starts_with(b"HTTP/1.0 4")
                || rest.starts_with(b"HTTP/1.1 5"),
            "{rest:?}"
        );
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn the_page_is_whole_in_itself_under_a_strict_policy_and_needs_no_key() {
    let server = Server::listening(&[], &[("HIPFIRE_API_KEY", "sesame")]);
    server.ready();
    for (path, kind) in [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("content-type").unwrap().starts_with(kind), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let policy = answer.header("content-security-policy").unwrap();
        for rule in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(rule), "{policy}");
        }
        assert!(!policy.contains("-inline") && !policy.contains("-eval") && !policy.contains('*'), "{policy}");
        let text = answer.text();
        for outside in ["http:", "https:", "//cdn", "innerHTML", "eval(", "onclick=", "style="] {
            assert!(!text.contains(outside), "{path} has {outside}");
        }
    }
}
