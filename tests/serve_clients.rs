//! Clients that nobody here wrote, against a running server.
//!
//! Ignored without them: run tests/clients/setup.sh, then `cargo test --release --test serve_clients -- --ignored`.

mod serve_support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serve_support::Server;

fn made(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients").join(path);
    assert!(path.exists(), "{} is missing: run tests/clients/setup.sh", path.display());
    path
}

/// A client against `server`, which is told its address last.
fn run(mut client: Command, server: &Server) {
    let done = client.arg(format!("http://{}", server.address)).output().unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{told}\n{}", server.log());
}

fn script(name: &str) -> Command {
    let mut command = Command::new(made("venv/bin/python"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name));
    command
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn openais_own_client_finds_everything_where_it_expects_it() {
    run(script("openai_sdk.py"), &Server::start(&[]));
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn anthropics_own_client_finds_everything_where_it_expects_it() {
    run(script("anthropic_sdk.py"), &Server::start(&[]));
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn litellm_reaches_the_server_as_openai_and_as_anthropic() {
    run(script("litellm_sdk.py"), &Server::start(&[]));
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn the_llm_program_chats_and_goes_on() {
    run(script("llm_cli.py"), &Server::start(&[]));
}

#[test]
#[ignore = "wants the Rust client of tests/clients/setup.sh"]
fn async_openai_reads_every_answer_through_its_own_types() {
    run(Command::new(made("cargo/debug/async-openai-client")), &Server::start(&[]));
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn every_route_keeps_to_its_description() {
    let server = Server::listening(&["--parallel", "4", "-c", "256"], &[("HIPFIRE_API_KEY", "sesame")]);
    server.ready();
    run(script("conformance.py"), &server);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
#[ignore = "wants a browser: tests/clients/setup.sh page"]
fn the_page_chats_in_a_real_browser() {
    run(script("page.py"), &Server::start(&[]));
}
