//! `hipfire quantize` as a process, and a GGUF file as a model of the other verbs.

#[path = "cli_support/mod.rs"]
mod cli;

use cli::Program;

const PROMPT: &str = "Once upon a time there was a little mouse";

fn answer(program: &Program, model: &[&str]) -> String {
    let outcome = program.run(&[&["run", PROMPT, "--raw", "-n", "24", "--temperature", "0"], model].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    outcome.out
}

#[test]
fn a_written_file_answers_like_the_model_it_came_from() {
    let program = Program::new();
    let written = program.run(&["quantize", "-o", "ember.gguf", "--type", "bf16"]);
    assert_eq!(written.code, 0, "{}", written.err);
    assert!(written.out.contains("n-gram table") && written.out.contains("MTP head"), "{}", written.out);
    assert_eq!(answer(&program, &["-m", "ember.gguf"]), answer(&program, &[]));
    // A conversation needs the template and the stop ids from the metadata.
    let chat = |model: &[&str]| {
        let run = ["run", "Tell me a story.", "-n", "16", "--temperature", "0", "--no-think"];
        program.run(&[&run, model].concat()).out
    };
    assert_eq!(chat(&["-m", "ember.gguf"]), chat(&[]));
    // A folder with the one file is the same model; what it says about itself has every group.
    let folder = program.path().to_str().unwrap().to_owned();
    let inspected = program.run(&["inspect", "-m", &folder]);
    assert_eq!(inspected.code, 0, "{}", inspected.err);
    assert!(inspected.out.contains("MTP head") && !inspected.out.contains("other"), "{}", inspected.out);
    // A file needs no option.
    let file = program.run(&["inspect", "ember.gguf"]);
    assert_eq!(file.out.split_once('\n').unwrap().1, inspected.out.split_once('\n').unwrap().1, "{}", file.err);
}

#[test]
fn overrides_change_the_tensors_they_name_and_the_summary_says_so() {
    let program = Program::new();
    let args =
        ["quantize", "embedded", "-o", "e.gguf", "--type", "Q8_0", "--tensor-type", "output.weight=f16", "--json"];
    let written = program.run(&args);
    assert_eq!(written.code, 0, "{}", written.err);
    let summary: serde_json::Value = serde_json::from_str(&written.out).unwrap();
    let groups = summary["groups"].as_array().unwrap();
    let dense = groups.iter().find(|group| group["name"] == "embedding and head").unwrap();
    assert_eq!(dense["types"], serde_json::json!(["Q8_0", "F16"]));
    assert_eq!(dense["bits_per_weight"], (8.5 + 16.0) / 2.0);
    assert_eq!(summary["bytes"], std::fs::metadata(program.path().join("e.gguf")).unwrap().len());
}

#[test]
fn mistakes_are_told_before_anything_is_written() {
    let program = Program::new();
    program.file("there.gguf", b"x");
    for (args, code, part) in [
        (vec!["-o", "a.gguf", "--type", "q7"], 2, "q7"),
        (vec!["-o", "there.gguf", "--type", "f16"], 1, "exists"),
        (vec!["-o", "no/a.gguf", "--type", "f16"], 1, "no folder no"),
        (vec!["-o", "a.gguf", "--type", "f16", "--tensor-type", "nothing=f32"], 1, "no tensor's name"),
        (vec!["-o", "a.gguf", "--type", "f16", "--tensor-type", "ffn_down=q4_k"], 1, "rows of 32"),
        (vec!["missing", "-o", "a.gguf", "--type", "f16"], 1, "missing"),
    ] {
        let outcome = program.run(&[vec!["quantize"], args.clone()].concat());
        assert_eq!(outcome.code, code, "{args:?}: {}", outcome.err);
        assert!(outcome.err.contains(part), "{args:?}: {}", outcome.err);
    }
    let left: Vec<_> = std::fs::read_dir(program.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["there.gguf"]);
    assert_eq!(program.run(&["quantize", "-o", "there.gguf", "--type", "f16", "--force"]).code, 0);
}
