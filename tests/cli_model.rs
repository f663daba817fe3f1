//! The program as a process, with the embedded model: what it prints, and how it ends when something is in the way.
#![cfg(feature = "embedded-model")]

mod cli_support;

use std::io::Read;
use std::process::{Command, Stdio};

use cli_support::{Outcome, Program, finish};
use serde_json::Value;

const STORY: &str = "Tell me a story about a brave mouse.";

fn run(args: &[&str]) -> Outcome {
    Program::new().run(args)
}

/// Standard output of a run that must succeed.
fn out(args: &[&str]) -> String {
    let outcome = run(args);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    outcome.out
}

fn greedy(more: &[&str]) -> String {
    out(&[&["run", STORY, "--temperature", "0", "-n", "160"], more].concat())
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&out(args)).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Never stops by itself: the two ids that end an answer are banned, and it is greedy.
const ENDLESS: [&str; 8] = ["run", STORY, "--temperature", "0", "--logit-bias", "0=-inf", "--logit-bias", "2=-inf"];

#[test]
fn the_story_is_the_same_for_every_thread_count_chunk_and_backend() {
    let story = greedy(&[]);
    assert!(story.len() > 100 && story.to_lowercase().contains("mouse"), "{story}");
    for more in [
        ["--threads", "1"],
        ["--threads", "2"],
        ["--threads", "3"],
        ["--prefill-chunk", "1"],
        ["--prefill-chunk", "7"],
        ["--prefill-chunk", "64"],
        ["--kv-backend", "legacy"],
        ["--kv-backend", "contiguous"],
        ["--kv-backend", "vmm"],
        ["--kv-mode", "f32"],
        ["-c", "512"],
    ] {
        assert_eq!(greedy(&more), story, "{more:?}");
    }
}

#[test]
fn a_seed_gives_the_same_text_and_another_one_another() {
    let with = |seed: &str| out(&["run", STORY, "--temperature", "1", "-n", "60", "--no-think", "--seed", seed]);
    assert_eq!(with("1"), with("1"));
    assert_ne!(with("1"), with("2"));
    // A drawn seed is reported, and gives the same text when it is given.
    let first = json(&["run", STORY, "--temperature", "1", "-n", "60", "--no-think", "--format", "json"]);
    let seed = first["settings"]["seed"].to_string();
    assert_eq!(with(&seed), first["text"].as_str().unwrap());
}

#[test]
fn prompts_come_from_every_place() {
    let program = Program::new().input(STORY.as_bytes());
    program.file("story.txt", STORY.as_bytes());
    let rest = ["--temperature", "0", "-n", "40"];
    let texts: Vec<String> =
        [&["run", STORY][..], &["run", "-p", STORY], &["run", "-f", "story.txt"], &["run"], &["run", "-f", "-"]]
            .into_iter()
            .map(|place| program.run(&[place, &rest].concat()).out)
            .collect();
    assert!(!texts[0].is_empty());
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[test]
fn thinking_stays_off_standard_output_and_is_shown_on_demand() {
    let all = json(&["run", STORY, "--temperature", "0", "-n", "200", "--format", "json"]);
    let (text, reasoning) = (all["text"].as_str().unwrap(), all["reasoning"].as_str().unwrap());
    assert!(!reasoning.trim().is_empty() && !text.contains("</think>"), "{all}");
    assert!(all["usage"]["reasoning_tokens"].as_u64().unwrap() > 0);
    let quiet = run(&["run", STORY, "--temperature", "0", "-n", "200", "-q"]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), (text, ""));
    let shown = run(&["run", STORY, "--temperature", "0", "-n", "200", "-q", "--show-thinking"]);
    assert_eq!(shown.out, text);
    assert!(shown.err.contains(reasoning.trim()), "{shown:?}");
    let none = json(&["run", STORY, "--temperature", "0", "-n", "40", "--no-think", "--format", "json"]);
    assert_eq!((none["reasoning"].as_str(), none["usage"]["reasoning_tokens"].as_u64()), (Some(""), Some(0)));
}

#[test]
fn the_length_is_kept_and_reported() {
    for n in [0u64, 1, 5] {
        let answer =
            json(&["run", STORY, "-n", &n.to_string(), "--temperature", "0", "--no-think", "--format", "json"]);
        assert_eq!(answer["usage"]["completion_tokens"].as_u64(), Some(n), "{answer}");
        assert_eq!(answer["stop_reason"], "length");
        assert_eq!(answer["settings"]["max-tokens"].as_u64(), Some(n));
    }
    let whole = json(&[&ENDLESS[..], &["-c", "200", "--format", "json"]].concat());
    assert_eq!(whole["usage"]["total_tokens"].as_u64(), Some(200), "{whole}");
    assert_eq!(whole["stop_reason"], "length");
}

#[test]
fn a_stop_text_ends_the_answer_before_it() {
    let rest = ["--temperature", "0", "-n", "60", "--no-think"];
    let whole = out(&[&["run", STORY], &rest[..]].concat());
    // Cut inside a word, so that it does not begin with a token.
    let at = whole.char_indices().nth(whole.chars().count() / 2).unwrap().0;
    let stop: String = whole[at..].chars().take(5).collect();
    let cut = whole.find(&stop).unwrap();
    let answer = json(&[&["run", STORY, "--stop", "never", "--stop", &stop, "--format", "json"], &rest[..]].concat());
    assert_eq!(answer["text"].as_str(), Some(&whole[..cut]));
    assert_eq!(answer["stop_reason"], "stop_string");
}

#[test]
fn every_form_tells_the_same_answer() {
    let args = ["run", STORY, "--temperature", "0", "-n", "120"];
    let text = out(&args);
    let object = json(&[&args[..], &["--format", "json"]].concat());
    let events = lines(&out(&[&args[..], &["--format", "jsonl"]].concat()));
    let joined = |kind: &str| -> String {
        let of_kind = events.iter().filter(|event| event["event"] == kind);
        of_kind.map(|event| event["text"].as_str().unwrap()).collect()
    };
    assert_eq!(object["text"].as_str(), Some(text.as_str()));
    assert_eq!((joined("content"), joined("reasoning")), (text, object["reasoning"].as_str().unwrap().to_string()));
    assert_eq!(events[0]["event"], "prefill");
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["stop_reason"]), (&Value::from("done"), &object["stop_reason"]));
    assert_eq!(last["usage"], object["usage"]);
    assert!(object["timings"]["predicted_per_second"].as_f64().unwrap() > 0.0);
    assert!(object["memory"]["committed"].as_u64().unwrap() > 0);
    assert_eq!(
        (&object["receipt"]["arch"], &object["ran"]["graph_replays"]),
        (&std::env::consts::ARCH.into(), &0.into())
    );
    assert_eq!((&last["receipt"], &last["ran"]), (&object["receipt"], &object["ran"]));
    assert_eq!(object["settings"]["temperature"].as_f64(), Some(0.0));
}

#[test]
fn random_weights_take_the_place_of_a_models_own() {
    let plan =
        json(&["inspect", "--plan", "--json", "--device", "cpu", "--synthetic", "released:q4_0", "-c", "262144"]);
    assert_eq!(plan["context"], 262_144);
    assert!(plan["total"].as_u64().unwrap() > 60 << 30, "{plan}");
    let answer = json(&[
        "run",
        STORY,
        "--synthetic",
        "small",
        "--device",
        "cpu",
        "--format",
        "json",
        "--temperature",
        "0",
        "-n",
        "3",
    ]);
    assert_eq!((&answer["model"], &answer["usage"]["completion_tokens"]), (&"small".into(), &3.into()), "{answer}");
    let refused: [(&[&str], &str); 2] = [
        (&["inspect", "--synthetic", "small"], "--plan"),
        (&["run", STORY, "--synthetic", "huge", "--device", "cpu"], "released or small"),
    ];
    for (args, part) in refused {
        let outcome = run(args);
        assert!(outcome.code != 0 && outcome.err.contains(part), "{outcome:?}");
    }
}

#[test]
fn statistics_and_log_lines_go_to_standard_error() {
    let outcome =
        run(&["run", STORY, "--temperature", "0", "-n", "20", "--no-think", "--stats", "--log-format", "json"]);
    assert_eq!(outcome.out, out(&["run", STORY, "--temperature", "0", "-n", "20", "--no-think"]));
    for word in ["prompt", "generation", "tokens/s", "first token", "committed"] {
        assert!(outcome.err.contains(word), "{word}: {outcome:?}");
    }
    let log: Value = serde_json::from_str(outcome.err.lines().next().unwrap()).unwrap();
    assert!(log["fields"]["message"].as_str().unwrap().contains("loaded ember"), "{log}");
    assert_eq!(run(&["run", STORY, "-n", "1", "-q"]).err, "");
}

#[test]
fn sampling_defaults_are_the_models() {
    let outcome = run(&["run", "x", "--print-config", "--top-k", "3"]);
    assert!(
        outcome.out.lines().any(|l| l.starts_with("temperature = 0.7 ") && l.contains("generation_config.json")),
        "{outcome:?}"
    );
    assert!(outcome.out.lines().any(|l| l.starts_with("top-k = 3 ") && l.contains("command line")), "{outcome:?}");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly_with_success() {
    for args in [&ENDLESS[..], &["score", "--top", "200", &STORY.repeat(20)]] {
        let mut child = Program::new().start(&[args, &["-q"]].concat());
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut [0; 4]).unwrap();
        drop(pipe);
        let outcome = finish(child);
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_a_sentence() {
    for args in
        [&["run", STORY, "-q", "--no-think"][..], &["score", "-q", STORY], &["inspect"], &["completions", "bash"], &[]]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let outcome = finish(Program::new().command(args).stdin(Stdio::null()).stdout(full).spawn().unwrap());
        assert_eq!(outcome.code, 1, "{args:?} {outcome:?}");
        assert!(outcome.err.contains("standard output") && outcome.err.contains("No space"), "{args:?} {outcome:?}");
    }
}

#[test]
fn an_interruption_keeps_what_was_generated_and_exits_130() {
    let interrupt = |args: &[&str]| {
        let mut child = Program::new().start(args);
        let mut pipe = child.stdout.take().unwrap();
        let mut text = vec![0; 40];
        pipe.read_exact(&mut text).unwrap();
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        pipe.read_to_end(&mut text).unwrap();
        (finish(child).code, String::from_utf8(text).unwrap())
    };
    let (code, text) = interrupt(&[&ENDLESS[..], &["--no-think"]].concat());
    assert_eq!(code, 130);
    let whole = out(&[&ENDLESS[..], &["--no-think"]].concat());
    assert!(whole.starts_with(text.trim_end_matches('\u{fffd}')) && text.len() < whole.len(), "{text}");
    // The last event is still told.
    let (code, text) = interrupt(&[&ENDLESS[..], &["--no-think", "--format", "jsonl"]].concat());
    assert_eq!(code, 130);
    assert_eq!(lines(&text).last().unwrap()["stop_reason"], "cancelled");
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_both_numbers() {
    let outcome = run(&["run", STORY, "-c", "8"]);
    assert_eq!((outcome.code, outcome.out.as_str()), (1, ""));
    assert!(outcome.err.contains("context holds 8") && outcome.err.contains("--max-seq"), "{outcome:?}");
    let outcome = run(&["score", &STORY.repeat(10), "-c", "16"]);
    assert!(outcome.code == 1 && outcome.err.contains("context holds 16"), "{outcome:?}");
}

#[test]
fn ids_outside_the_vocabulary_are_named() {
    let program = Program::new();
    program.file("ids.txt", b"1 2\n4096");
    let outcome = program.run(&["score", "--tokens", "ids.txt"]);
    assert_eq!((outcome.code, outcome.out.as_str()), (1, ""));
    assert!(
        outcome.err.contains("token 2") && outcome.err.contains("4096") && outcome.err.contains("4095"),
        "{outcome:?}"
    );
    let outcome = program.run(&["run", STORY, "--logit-bias", "5000=1"]);
    assert!(outcome.code == 1 && outcome.err.contains("5000"), "{outcome:?}");
}

#[test]
fn scores_add_up_and_agree_for_text_ids_and_chunks() {
    let text = "Once upon a time there was a brave mouse. She lived in a small house by the river.";
    let program = Program::new().input(text.as_bytes());
    let scored = lines(&program.run(&["score", "--top", "2"]).out);
    let (rows, totals) = scored.split_at(scored.len() - 1);
    let totals = &totals[0];
    assert!(rows.len() > 10);
    assert_eq!(totals["tokens"].as_u64(), Some(rows.len() as u64));
    assert!(rows[0]["logprob"].is_null() && rows[0]["top"].as_array().unwrap().is_empty());
    let mut nll = 0.0;
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row["pos"].as_u64(), Some(index as u64));
        let Some(logprob) = row["logprob"].as_f64() else { continue };
        let top = row["top"].as_array().unwrap();
        assert!(top.len() == 2 && top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
        assert!(logprob <= top[0]["logprob"].as_f64().unwrap());
        nll -= logprob;
    }
    // The printed f32 are exact; the sum is over as many doubles.
    assert!((totals["nll"].as_f64().unwrap() - nll).abs() < rows.len() as f64 * 1e-7 * nll.abs().max(1.0));
    let mean = totals["nll"].as_f64().unwrap() / (rows.len() - 1) as f64;
    assert!((totals["perplexity"].as_f64().unwrap() / mean.exp() - 1.0).abs() < 1e-12);

    let ids: Vec<String> = rows.iter().map(|row| row["id"].to_string()).collect();
    program.file("ids.txt", ids.join("\n").as_bytes());
    let again = lines(&program.run(&["score", "--top", "2", "--tokens", "ids.txt"]).out);
    assert_eq!(again, scored);
    for chunk in ["1", "5", "16", "17"] {
        let other = lines(&program.run(&["score", "--chunk", chunk]).out);
        assert_eq!(other.len(), scored.len());
        for (a, b) in other.iter().zip(&scored) {
            assert_eq!(a["id"], b["id"]);
            // Chunked and recurrent forms round differently; the golden tolerance for fp32 intermediates.
            let (a, b) = (a["logprob"].as_f64().unwrap_or(0.0), b["logprob"].as_f64().unwrap_or(0.0));
            assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "chunk {chunk}: {a} {b}");
        }
    }
}

#[test]
fn every_probability_is_listed_on_demand_and_they_sum_to_one() {
    let scored = lines(&out(&["score", "--top", "4096", "a mouse"]));
    let sum: f64 = scored[1]["top"].as_array().unwrap().iter().map(|t| t["logprob"].as_f64().unwrap().exp()).sum();
    // |ln p| stays under 64 here, so that rounding it to f32 changes p by at most 64 * 2^-24.
    assert!((sum - 1.0).abs() < 64.0 * 6e-8, "{sum}");
}

#[test]
fn raw_text_is_continued_without_a_template() {
    let raw = json(&["run", "--raw", "Once upon a time", "--temperature", "0", "-n", "10", "--format", "json"]);
    let chat = json(&["run", "Once upon a time", "--temperature", "0", "-n", "10", "--format", "json"]);
    assert!(raw["usage"]["prompt_tokens"].as_u64() < chat["usage"]["prompt_tokens"].as_u64());
    assert_eq!(raw["reasoning"], "");
    assert!(!raw["text"].as_str().unwrap().is_empty());
    let mixed = run(&["run", "--raw", "--system", "x", "Once"]);
    assert!(mixed.code == 2 && mixed.err.contains("--system"), "{mixed:?}");
}

#[test]
fn inspect_describes_the_model_and_plans_before_loading() {
    let table = out(&["inspect"]);
    for part in ["ember", "routed experts", "n-gram table", "hyper-connections", "4096 ids", "2048 tokens"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let summary = json(&["inspect", "--json"]);
    let groups = summary["groups"].as_array().unwrap();
    let sum: u64 = groups.iter().map(|group| group["parameters"].as_u64().unwrap()).sum();
    assert_eq!(summary["parameters"].as_u64(), Some(sum));
    // Everything is resident but the n-gram table.
    let bytes =
        |kept: &str| -> u64 { groups.iter().filter(|g| g["kept"] == kept).map(|g| g["bytes"].as_u64().unwrap()).sum() };
    assert_eq!(summary["memory_bytes"], bytes("memory") + bytes("memory_for_drafts"));
    assert_eq!((summary["file_bytes"].as_u64(), bytes("nowhere")), (Some(bytes("file")), 0));
    assert!(bytes("file") > 0);
    assert!(table.lines().any(|line| line.contains("n-gram table") && line.contains("in its file")), "{table}");
    assert!(!out(&["inspect", "--plan"]).trim().is_empty());
}
