//! `hipfire chat`: commands, a model loaded here, a server.

mod serve_support;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use serve_support::Server;

fn talk(args: &[&str], lines: &str, folder: &std::path::Path) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hipfire"))
        .arg("chat")
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A chat that ends early does not read everything.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_conversation_is_remembered_saved_and_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "/system Be kind.\nTell me a story about a mouse.\nAnd then?\n/save talk.json\n/reset\nHello!\n\
        /save new.json\n/sing\n/quit\nnever said\n";
    let done = talk(&["--temperature", "0", "-n", "60", "-c", "1024"], lines, folder.path());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let saved =
        |name: &str| -> Value { serde_json::from_slice(&std::fs::read(folder.path().join(name)).unwrap()).unwrap() };
    let roles = |talk: &Value| -> Vec<String> {
        talk["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap().to_string()).collect()
    };
    let told = saved("talk.json");
    assert_eq!(roles(&told), ["system", "user", "assistant", "user", "assistant"]);
    let answer = told["messages"][2]["content"].as_str().unwrap();
    assert!(answer.len() > 20 && text(&done.stdout).contains(answer), "{told}");
    assert!(told["messages"][2]["reasoning_content"].is_string());
    assert_eq!(roles(&saved("new.json")), ["system", "user", "assistant"], "the system message stays");
    let noted = text(&done.stderr);
    assert!(noted.contains("/sing is not a command") && noted.contains("saved in talk.json"), "{noted}");
    assert!(!text(&done.stdout).contains("saved"), "only answers go to standard output");
}

#[test]
fn a_server_answers_as_the_model_here_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::listening(&[], &[("HIPFIRE_API_KEY", "sesame")]);
    server.ready();
    let url = format!("http://{}", server.address);
    let common = ["--temperature", "0", "-n", "60"];
    let lines = "Tell me a story about a mouse.\nAnd then?\n";
    let here = talk(&[&common[..], &["-c", "2048"]].concat(), lines, folder.path());
    let there = talk(&[&common[..], &["--url", &url, "--api-key", "sesame"]].concat(), lines, folder.path());
    assert_eq!(text(&there.stdout), text(&here.stdout), "{}", text(&there.stderr));
    assert!(text(&here.stdout).lines().count() >= 2);

    let refused = talk(&["--url", &url], lines, folder.path());
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("401"), "{}", text(&refused.stderr));
    let mistake =
        talk(&["--url", &url, "--api-key", "sesame", "--temperature", "-1"], "Hello!\n/help\n", folder.path());
    assert_eq!(mistake.status.code(), Some(0), "a failed answer does not end the chat");
    let noted = text(&mistake.stderr);
    assert!(noted.contains("temperature is -1") && noted.contains("/system TEXT"), "{noted}");
}

#[test]
fn an_address_that_does_not_answer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (url, part) in
        [("http://127.0.0.1:1", "127.0.0.1:1"), ("https://localhost", "http alone"), ("http://localhost/x/y", "path")]
    {
        let done = talk(&["--url", url], "Hello!\n", folder.path());
        assert_eq!(done.status.code(), Some(1), "{url}");
        assert!(text(&done.stderr).contains(part), "{url}: {}", text(&done.stderr));
    }
}

#[test]
fn an_interrupt_stops_the_answer_and_keeps_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[]);
    // Forced to go on, so that there is time to interrupt it.
    let token = server.post("/tokenize", &json!({"content": " mouse"})).json()["tokens"][0].clone();
    let mut child = Command::new(env!("CARGO_BIN_EXE_hipfire"))
        .args(["chat", "-c", "2048", "--no-think", "--temperature", "0", "--logit-bias", &format!("{token}=99")])
        .current_dir(folder.path())
        .env_clear()
        .env("HOME", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"Hello!\n").unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut first = [0; 30];
    std::io::Read::read_exact(&mut output, &mut first).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut line = Vec::new();
    std::io::BufRead::read_until(&mut output, b'\n', &mut line).unwrap();
    input.write_all(b"/save talk.json\n").unwrap();
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let saved: Value = serde_json::from_slice(&std::fs::read(folder.path().join("talk.json")).unwrap()).unwrap();
    let answer = saved["messages"][1]["content"].as_str().unwrap();
    assert!(answer.contains("mouse mouse") && answer.len() < 1900 * 6, "{} characters", answer.len());
}
