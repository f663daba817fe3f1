//! The program as a process, as far as it goes without a model: help, exit codes, settings and their layers.

mod cli_support;

use cli_support::{Outcome, Program};

fn refused(outcome: &Outcome, parts: &[&str]) {
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert_eq!(outcome.out, "", "{outcome:?}");
    assert!(parts.iter().all(|part| outcome.err.contains(part)), "{parts:?}: {outcome:?}");
}

#[test]
fn bare_program_prints_a_short_help_of_what_works_and_succeeds() {
    let outcome = Program::new().run(&[]);
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    for verb in ["run", "chat", "serve", "score", "inspect", "bench", "doctor", "quantize", "completions"] {
        assert!(outcome.out.contains(&format!("\n  {verb} ")), "{verb}: {}", outcome.out);
    }
    assert!(outcome.out.lines().count() < 40);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let program = Program::new();
    let help = program.run(&["run", "--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    for option in
        ["--max-seq", "--ctx-size", "--max-model-len", "--temp", "--kv-backend", "--no-think", "--show-thinking"]
    {
        assert!(help.out.contains(option), "{option}");
    }
    assert_eq!(program.run(&["--version"]).out, format!("hipfire {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_cannot_be_meant_is_usage_and_named() {
    let program = Program::new();
    refused(&program.run(&["run", "--tempreture", "1", "x"]), &["--tempreture", "--temperature"]);
    refused(&program.run(&["fly"]), &["fly"]);
    refused(&program.run(&["run", "--kv-mode", "q4", "x"]), &["q4", "f32", "fp8", "q8", "auto"]);
    refused(&program.run(&["run", "--max-seq", "lots", "x"]), &["--max-seq", "lots", "32k"]);
    refused(&program.run(&["run", "--memory-limit", "120%", "x"]), &["--memory-limit", "100%"]);
    refused(&program.run(&["run", "one", "-p", "two"]), &["cannot be used with"]);
    refused(&program.run(&["score", "--tokens", "ids.txt", "text"]), &["cannot be used with"]);
    refused(&program.run(&["run", "--mtp", "8", "x"]), &["--mtp", "auto", "0 (off) to 7"]);
    refused(&program.run(&["run", "--reasoning-effort", "huge", "x"]), &["huge", "xhigh"]);
    refused(&program.env("RUST_LOG", "a=b=c").run(&["run", "x"]), &["RUST_LOG"]);
}

#[test]
fn an_empty_prompt_is_usage() {
    let program = Program::new();
    for args in [&["run", ""][..], &["run", " \n"], &["run", "-p", ""], &["run"], &["score"], &["run", "--raw", ""]] {
        refused(&program.run(args), &["empty"]);
    }
}

#[test]
fn bad_files_are_named_with_the_place_of_the_mistake() {
    let program = Program::new();
    program.file("bad.txt", b"good \xff bad");
    program.file("ids.txt", b"1 2 3\n4 five 6\n");
    program.file("none.txt", b" \n");
    let failed = |args: &[&str], parts: &[&str]| {
        let outcome = program.run(args);
        assert_eq!((outcome.code, outcome.out.as_str()), (1, ""), "{outcome:?}");
        assert!(parts.iter().all(|part| outcome.err.contains(part)), "{parts:?}: {outcome:?}");
    };
    failed(&["run", "-f", "missing.txt"], &["missing.txt", "No such file"]);
    failed(&["run", "-f", "bad.txt"], &["bad.txt", "UTF-8", "byte 5", "0xff"]);
    failed(&["score", "--tokens", "ids.txt"], &["ids.txt", "line 2", "'five'"]);
    failed(&["score", "--tokens", "none.txt"], &["none.txt", "no token ids"]);
    failed(&["run", "-m", "nowhere", "x"], &["nowhere"]);
    let outcome = program.input(b"\xc3(").run(&["run"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("standard input") && outcome.err.contains("byte 0"), "{outcome:?}");
}

/// The line of a setting in `--print-config`.
fn shown(program: &Program, args: &[&str], name: &str) -> String {
    let mut all = args.to_vec();
    all.push("--print-config");
    let outcome = program.run(&all);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let start = format!("{name} = ");
    let line =
        outcome.out.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{name}: {outcome:?}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_layer_of_settings_wins_over_the_next_and_is_named() {
    let program = Program::new();
    let base = ["run", "-m", "models/big"];
    assert_eq!(shown(&program, &base, "kv-mode"), "kv-mode = \"auto\" # default");

    program.file("home/.config/hipfire/config.toml", b"kv-mode = \"f32\"");
    let line = shown(&program, &base, "kv-mode");
    assert!(line.starts_with("kv-mode = \"f32\" # ") && line.ends_with(".config/hipfire/config.toml"), "{line}");

    // A named file takes the place of the one on the XDG path.
    program.file("c.toml", b"threads = 3\n[model.big]\nkv-mode = \"fp8\"\n[model.small]\nkv-mode = \"f32\"");
    let named = ["run", "-m", "models/big", "--config", "c.toml"];
    assert_eq!(shown(&program, &named, "threads"), "threads = 3 # c.toml");
    assert_eq!(shown(&program, &named, "kv-mode"), "kv-mode = \"fp8\" # c.toml, [model.\"big\"]");

    let program = program.env("HIPFIRE_KV_MODE", "q8");
    assert_eq!(shown(&program, &named, "kv-mode"), "kv-mode = \"q8\" # environment, HIPFIRE_KV_MODE");
    let flag = ["run", "-m", "models/big", "--config", "c.toml", "--kv-mode", "f32"];
    assert_eq!(shown(&program, &flag, "kv-mode"), "kv-mode = \"f32\" # command line");
}

#[test]
fn the_model_of_the_environment_chooses_its_table() {
    let program = Program::new().env("HIPFIRE_MODEL", "/models/big").env("HIPFIRE_CONFIG", "c.toml");
    program.file("c.toml", b"[model]\ndefault = \"small\"\n[model.big]\ntop-k = 5\n[model.small]\ntop-k = 7");
    assert_eq!(shown(&program, &["run"], "top-k"), "top-k = 5 # c.toml, [model.\"big\"]");
    let program = Program::new();
    program.file("c.toml", b"[model]\ndefault = \"small\"\n[model.big]\ntop-k = 5\n[model.small]\ntop-k = 7");
    assert_eq!(shown(&program, &["run", "--config", "c.toml"], "top-k"), "top-k = 7 # c.toml, [model.\"small\"]");
    assert_eq!(shown(&program, &["run", "--config", "c.toml"], "model"), "model = \"small\" # c.toml");
}

#[test]
fn switches_and_lists_work_in_every_layer() {
    let program = Program::new();
    program.file("c.toml", b"think = true\nstats = true\nstop = [\"a\", \"b\"]\ncolor = \"never\"");
    fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["run", "-m", "nowhere", "--config", "c.toml"], more].concat()
    }
    assert_eq!(shown(&program, &with(&[]), "stop"), "stop = [\"a\", \"b\"] # c.toml");
    assert_eq!(shown(&program, &with(&[]), "stats"), "stats = true # c.toml");
    assert_eq!(shown(&program, &with(&[]), "color"), "color = \"never\" # c.toml");
    assert_eq!(shown(&program, &with(&["--stats=false"]), "stats"), "stats = false # command line");
    assert_eq!(shown(&program, &with(&["--no-think"]), "think"), "think = false # command line");
    assert_eq!(shown(&program, &with(&["--no-think", "--think"]), "think"), "think = true # command line");
    assert_eq!(shown(&program, &with(&["--stop", "z"]), "stop"), "stop = [\"z\"] # command line");
    let program = program.env("HIPFIRE_THINK", "no").env("HIPFIRE_RAW", "1");
    assert_eq!(
        shown(&program, &with(&[]), "think"),
        "think = no # environment, HIPFIRE_THINK".replace("no ", "\"no\" ")
    );
    assert_eq!(shown(&program, &with(&[]), "raw"), "raw = 1 # environment, HIPFIRE_RAW");
}

#[test]
fn wrong_keys_and_values_of_a_configuration_are_usage_and_named() {
    let program = Program::new();
    program.file("key.toml", b"temprature = 1");
    program.file("value.toml", b"kv-mode = \"q4\"");
    program.file("toml.toml", b"= 1");
    refused(&program.run(&["run", "--config", "key.toml", "x"]), &["key.toml", "'temprature'", "'temperature'"]);
    refused(&program.run(&["run", "--config", "value.toml", "x"]), &["value.toml", "'kv-mode'", "q4", "fp8"]);
    refused(&program.run(&["score", "--config", "toml.toml", "x"]), &["toml.toml"]);
    let missing = program.run(&["run", "--config", "missing.toml", "x"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("missing.toml"), "{missing:?}");
    refused(&program.env("HIPFIRE_KV_MODE", "q4").run(&["run", "x"]), &["q4", "--kv-mode"]);
}

#[test]
fn completions_are_scripts_for_the_verbs_that_work() {
    for shell in ["bash", "zsh", "fish"] {
        let outcome = Program::new().run(&["completions", shell]);
        assert_eq!(outcome.code, 0);
        assert!(outcome.out.contains("kv-backend") && outcome.out.contains("score"), "{shell}");
    }
    refused(&Program::new().run(&["completions", "dos"]), &["dos"]);
}
