//! Speed of the whole model on the CPU against its floors, on a synthetic checkpoint of the released geometry.
//!
//! Owns: the synthetic model (four layers, about 1 GiB of BF16 read a token), its floors in bytes and multiply-adds,
//! and the ceilings of the machine, all measured in one run.
//! Run with `cargo bench --bench forward -- [--threads N]`; it needs 4 GB of memory and 2 GB of disk. With `--write DIR`
//! it only writes the checkpoint, without an MTP head, into DIR (which exists), for `compare_llama.py`.

#[cfg(target_arch = "x86_64")]
mod ceiling;
#[path = "../tests/support/mod.rs"]
mod support;

#[cfg(target_arch = "x86_64")]
mod measure {
    use std::hint::black_box;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use hipfire::arena::host::FileMap;
    use hipfire::model::load::{self, LoadOptions};
    use hipfire::model::{Feed, LanguageModel};
    use hipfire::weights::{Format, Source};
    use serde_json::json;

    use super::ceiling;
    use super::support::checkpoint::{Mtp, Recipe};

    const EXPERTS: usize = 32;
    const VOCAB: usize = 4096;
    const CHUNK: usize = 512;

    /// The released widths; 4 layers, 32 experts and 4,096 ids instead of 48, 512 and 248,320.
    fn recipe() -> Recipe {
        let kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"];
        Recipe::tiny()
            .formats(Format::Bf16)
            .set("vocab_size", VOCAB)
            .set("hidden_size", 2560)
            .set("num_hidden_layers", 4)
            .set("layer_types", json!(kinds))
            .set("num_attention_heads", 24)
            .set("num_key_value_heads", 2)
            .set("head_dim", 256)
            .set("rope_parameters", json!({"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}))
            .set("linear_num_key_heads", 16)
            .set("linear_num_value_heads", 48)
            .set("linear_key_head_dim", 128)
            .set("linear_value_head_dim", 128)
            .set("num_experts", EXPERTS)
            .set("num_experts_per_tok", 10)
            .set("moe_intermediate_size", 640)
            .set("shared_expert_intermediate_size", 640)
            .set("hc_lowrank", 320)
            .set("ple_embed_dim", 2560)
            .set("heads_per_ngram", 8)
            .set("indexer_head_dim", 128)
            .set("indexer_budget", 2048)
            .set("max_position_embeddings", 16384)
    }

    pub fn write(folder: &Path) {
        Recipe { mtp: Mtp::None, ..recipe() }.write(folder).unwrap();
    }

    /// Multiply-adds of a token's matrix products; each reads its weight once when one token is fed.
    fn products() -> usize {
        let (h, d, rank, inner) = (2560, 10240, 320, 640);
        let hyper = 2 * rank * d + 4 * d;
        let moe = EXPERTS * h + 10 * 3 * inner * h + 3 * inner * h + h;
        let gdn = 10240 * h + 6144 * h + 2 * 48 * h + h * 6144;
        let qsa = 12288 * h + 2 * 512 * h + 640 * h + h * 6144;
        let ple = d * 2560 + h * 2560;
        4 * (2 * hyper + moe) + 3 * gdn + qsa + ple + 2 * rank * d + VOCAB * h
    }

    pub fn report(threads: usize) {
        if !ceiling::available() {
            println!("no AVX2 and FMA here: the ceilings are not measured");
            return;
        }
        let folder = recipe().write_temporary();
        let options = LoadOptions { threads, max_rows: CHUNK, ..LoadOptions::default() };
        let opened = load::open(&Source::open(folder.path()).unwrap()).unwrap();
        let mut model = load::cpu(opened, &options, &mut |_| {}).unwrap();
        let ids: Vec<u32> = (0..4096u64).map(|i| (i * 2_654_435_761 % VOCAB as u64) as u32).collect();
        let mut sequence = model.new_sequence().unwrap();
        let mut fed = 0;
        let mut feed = |count: usize| {
            let part = &ids[fed..fed + count];
            fed += count;
            let start = Instant::now();
            model.forward(&mut [Feed { sequence: &mut sequence, ids: part }]).unwrap();
            black_box(model.logits(&[count - 1]).unwrap());
            start.elapsed().as_secs_f64()
        };
        feed(CHUNK);
        let prefill = (0..3).map(|_| feed(CHUNK)).fold(f64::INFINITY, f64::min);
        feed(1);
        let mut steps: Vec<f64> = (0..100).map(|_| feed(1)).collect();
        steps.sort_by(f64::total_cmp);
        let decode = steps[steps.len() / 2];

        // The same bytes from the same place: a mapped file comes in small pages, memory of one's own in large ones.
        let map = FileMap::open(&folder.path().join("model.safetensors")).unwrap();
        let (mapped, owned) = (&map.bytes()[..1 << 30], vec![1u8; 1 << 30]);
        let [read, read_owned, peak] = ceiling::best(
            Duration::from_secs(6),
            [&mut || ceiling::read(mapped, threads), &mut || ceiling::read(&owned, threads), &mut || {
                ceiling::multiply_adds_everywhere(threads)
            }],
        );
        let (bandwidth, owned) = (mapped.len() as f64 / read, owned.len() as f64 / read_owned);
        let rate = (threads * ceiling::MULTIPLY_ADDS) as f64 / peak;
        let (read_a_token, prefill_work) = (2 * products(), CHUNK * products());
        println!("threads {threads}; weights read a token {:.3} GiB", read_a_token as f64 / (1u64 << 30) as f64);
        println!(
            "ceilings: read {:.1} GB/s from the mapped file ({:.1} from memory of one's own), multiply-adds {:.1} G/s",
            bandwidth / 1e9,
            owned / 1e9,
            rate / 1e9
        );
        println!(
            "decode  {:7.2} ms a token, {:5.1} GB/s: {:3.0} % of the read ceiling (median of 100; best {:.0} %)",
            decode * 1e3,
            read_a_token as f64 / decode / 1e9,
            100.0 * read_a_token as f64 / decode / bandwidth,
            100.0 * read_a_token as f64 / steps[0] / bandwidth,
        );
        println!(
            "prefill {:7.1} tokens/s, {:5.1} G multiply-adds/s: {:3.0} % of the arithmetic ceiling (best of 3 chunks of {CHUNK})",
            CHUNK as f64 / prefill,
            prefill_work as f64 / prefill / 1e9,
            100.0 * prefill_work as f64 / prefill / rate,
        );
    }
}

#[cfg(target_arch = "x86_64")]
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let given = |name| args.iter().position(|arg| arg == name).and_then(|i| args.get(i + 1));
    if let Some(folder) = given("--write") {
        return measure::write(folder.as_ref());
    }
    let threads = given("--threads").and_then(|count| count.parse().ok());
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| measure::report(threads));
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("the ceilings are measured on x86-64 only");
}
