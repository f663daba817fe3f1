//! The memory plan against the memory that a run really takes, as the system counts it.

mod support;

use std::process::Command;

use hipfire::weights::Format;
use serde_json::Value;
use support::checkpoint::Recipe;

/// A model large enough that two per cent of it are more than the noise of a process: 0.4 GB, all of which a random
/// text of the context's length touches.
fn recipe() -> Recipe {
    Recipe::tiny()
        .formats(Format::Bf16)
        .set("vocab_size", 4096)
        .set("hidden_size", 512)
        .set("indexer_head_dim", 32)
        .set("head_dim", 64)
        .set("moe_intermediate_size", 256)
        .set("shared_expert_intermediate_size", 256)
        .set("num_experts", 48)
        .set("num_experts_per_tok", 8)
        .set("ple_embed_dim", 512)
        .set("indexer_budget", 256)
        .set("max_position_embeddings", 2048)
        .set("eos_token_id", 0)
}

fn hipfire(args: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hipfire")).args(args).env_clear().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_run_stays_within_two_per_cent_of_its_plan() {
    let folder = recipe().write_temporary();
    let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/models/ember/tokenizer.json");
    std::fs::copy(embedded, folder.path().join("tokenizer.json")).unwrap();
    let model = folder.path().to_str().unwrap();
    let ids: Vec<String> = (0..2047u64).map(|i| (1 + i * 2_654_435_761 % 4095).to_string()).collect();
    let prompt = folder.path().join("prompt.txt");
    // Words of single digits: about one token a character, so that the prompt fills the context.
    let text: String = ids.iter().map(|id| format!("{} ", id.as_bytes()[0] as char)).collect::<String>();
    std::fs::write(&prompt, &text[..2000]).unwrap();
    for backend in ["vmm", "legacy"] {
        let plan = ["inspect", "--plan", "--json", "-m", model, "--kv-backend", backend, "--threads", "2"];
        let (plan, _) = hipfire(&[&plan[..], &["--cache-memory", "0"]].concat());
        let plan: Value = serde_json::from_str(&plan).unwrap();
        let planned = plan["total"].as_f64().unwrap();
        let (answer, _) = hipfire(&[
            "run",
            "--raw",
            "-f",
            prompt.to_str().unwrap(),
            "-n",
            "20",
            "-m",
            model,
            "--kv-backend",
            backend,
            "--threads",
            "2",
            "--format",
            "json",
        ]);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let peak = answer["memory"]["peak_resident"].as_f64().unwrap();
        let share = peak / planned;
        println!("{backend}: planned {planned}, peak {peak}, {:.1} %, {} tokens", share * 100.0, answer["usage"]);
        assert!(share <= 1.02, "{backend}: the run took {peak} of a planned {planned} bytes");
        // Not far below either: a plan that is twice the truth would refuse what fits.
        assert!(share >= 0.90, "{backend}: the run took only {peak} of a planned {planned} bytes");
    }
}
