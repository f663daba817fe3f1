//! Clients that nobody here wrote, against a running server.
//!
//! Ignored without them: run tests/clients/setup.sh, then `cargo test --release --test serve_clients -- --ignored`.

mod serve_support;

use std::path::Path;
use std::process::Command;

use serve_support::Server;

fn run(script: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = folder.join("target/clients/venv/bin/python");
    assert!(python.exists(), "{} is missing: run tests/clients/setup.sh", python.display());
    let server = Server::start(&[]);
    let url = format!("http://{}", server.address);
    let done = Command::new(python).arg(folder.join("tests/clients").join(script)).arg(url).output().unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{told}\n{}", server.log());
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn openais_own_client_finds_everything_where_it_expects_it() {
    run("openai_sdk.py");
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn anthropics_own_client_finds_everything_where_it_expects_it() {
    run("anthropic_sdk.py");
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn litellm_reaches_the_server_as_openai_and_as_anthropic() {
    run("litellm_sdk.py");
}

#[test]
#[ignore = "wants the Python packages of tests/clients/setup.sh"]
fn the_llm_program_chats_and_goes_on() {
    run("llm_cli.py");
}

#[test]
#[ignore = "wants a browser: tests/clients/setup.sh page"]
fn the_page_chats_in_a_real_browser() {
    run("page.py");
}
