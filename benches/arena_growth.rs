//! The arena on a device: 262,144 tokens of f32 state of the released geometry written under one captured graph.
//!
//! Prints the time to reserve, to map a segment, and what share of the replays' time the mapping takes. Every step is a
//! replay of the same graph: twelve layers' `qsa_prepare_f32`, whose position is device data; the arena maps one step
//! ahead. At the end rows all over the context are read back.
//! `cargo bench --bench arena_growth` with a device; `-- --tokens N` shortens it, `-- --kernel-pack FILE` as elsewhere.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hipfire::arena::vmm::{self, Opened, Options};
use hipfire::arena::{KvBackend, Range, ensure_ahead};
use hipfire::backend::hip::abi::{KvPlanes, QsaPrepareArgs};
use hipfire::backend::hip::kernels::Kernels;
use hipfire::backend::hip::pack::Pack;
use hipfire::device::canary::KernelCanary;
use hipfire::device::{Context, DeviceMemory, DeviceSpan, Library, PinnedMemory, Stream};

const LAYERS: usize = 12;
const HEADS: usize = 24;
const KV_HEADS: usize = 2;
const DIM: usize = 256;
const INDEX_HEADS: usize = 4;
const INDEX_DIM: usize = 128;
const HALF: usize = 32;
const MAX_TOKENS: usize = 262_144;
/// Bytes a token of keys, values, raw index keys, and block keys (a quarter of a row).
const PLANES: [(&str, usize); 4] = [
    ("keys", KV_HEADS * DIM * 4),
    ("values", KV_HEADS * DIM * 4),
    ("raw index keys", INDEX_DIM * 4),
    ("block keys", INDEX_DIM),
];

fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let tokens: usize = argument("--tokens").map_or(Ok(MAX_TOKENS), |text| text.parse())?;
    let library = match Library::open() {
        Ok(library) => library,
        Err(missing) => {
            println!("skipped: {missing}");
            return Ok(());
        }
    };
    let context = Context::new(&library, 0)?;
    let pack = argument("--kernel-pack").map(PathBuf::from);
    let pack = pack.as_deref().map_or_else(Pack::embedded, Pack::open)?;
    let kernels = Kernels::load(&context, &pack)?;
    let stream = Stream::new(&context)?;
    let canary = KernelCanary::new(kernels.function(KernelCanary::KERNEL)?.clone(), Stream::new(&context)?)?;
    let options = Options { choice: Some(KvBackend::Vmm), ..Options::default() };
    let Opened { arena, .. } = vmm::open(&context, std::sync::Arc::new(canary), options)?;

    let started = Instant::now();
    let mut ranges = Vec::new();
    for layer in 0..LAYERS {
        for (name, bytes) in PLANES {
            ranges.push(arena.reserve(&format!("layer {layer} {name}"), MAX_TOKENS * bytes)?);
        }
    }
    let reserving = started.elapsed();
    let reserved: usize = ranges.iter().map(Range::reserved).sum();

    let addresses: Vec<KvPlanes> = ranges
        .chunks(4)
        .map(|r| KvPlanes { keys: r[0].base(), values: r[1].base(), raw: r[2].base(), blocks: r[3].base() })
        .collect();
    let upload = |bytes: &[u8]| -> Result<DeviceMemory, Box<dyn Error>> {
        let memory = DeviceMemory::new(&context, bytes.len())?;
        memory.span().upload(&stream, bytes)?;
        Ok(memory)
    };
    let planes = upload(bytemuck::cast_slice(&addresses))?;
    let floats =
        |count: usize, scale: f32| -> Vec<f32> { (0..count).map(|i| scale * (1.0 + (i % 97) as f32)).collect() };
    let input = |count: usize| upload(bytemuck::cast_slice(&floats(count, 0.01)));
    let inputs = input(HEADS * 2 * DIM)?;
    let outputs = DeviceMemory::new(&context, (HEADS + INDEX_HEADS) * DIM * 4)?;
    let position = DeviceMemory::new(&context, 8)?;
    let mut host = PinnedMemory::new(&context, 8)?;
    let arguments = |layer: usize| QsaPrepareArgs {
        queries: outputs.address(),
        index_queries: outputs.address() + (HEADS * DIM * 4) as u64,
        planes: planes.address() + (layer * size_of::<KvPlanes>()) as u64,
        // The step's words: the row's sequence, always 0, then its position.
        sequence: position.address(),
        positions: position.address() + 4,
        query_gate: inputs.address(),
        keys: inputs.address(),
        values: inputs.address(),
        index_query: inputs.address(),
        index_key: inputs.address(),
        query_norm: inputs.address(),
        key_norm: inputs.address(),
        index_query_norm: inputs.address(),
        index_key_norm: inputs.address(),
        cos: inputs.address(),
        sin: inputs.address(),
        block_cos: inputs.address(),
        block_sin: inputs.address(),
        rows: 1,
        heads: HEADS as u32,
        kv_heads: KV_HEADS as u32,
        dim: DIM as u32,
        index_heads: INDEX_HEADS as u32,
        index_dim: INDEX_DIM as u32,
        half: HALF as u32,
        ratio: 4,
        eps: 1e-6,
        unused: 0,
    };
    let grid = (HEADS + 2 * KV_HEADS + INDEX_HEADS + 1).div_ceil(8);
    let grow = |ranges: &mut Vec<Range>, tokens: usize| -> Result<bool, Box<dyn Error>> {
        let needs = PLANES.map(|(_, bytes)| bytes * tokens.next_multiple_of(4));
        let mut growths: Vec<_> = ranges.iter_mut().enumerate().map(|(i, range)| (range, needs[i % 4])).collect();
        Ok(ensure_ahead(&mut growths)?)
    };
    grow(&mut ranges, 1)?;
    let graph = stream.capture(|| {
        (0..LAYERS).try_for_each(|layer| kernels.launch(&stream, "qsa_prepare_f32", grid as u32, &arguments(layer)))
    })?;

    let (mut mapping, mut worst, mut growths) = (Duration::ZERO, Duration::ZERO, 0);
    let started = Instant::now();
    for token in 0..tokens {
        let before = arena.usage().committed;
        let at = Instant::now();
        grow(&mut ranges, token + 1)?;
        if arena.usage().committed > before {
            let took = at.elapsed();
            (mapping, worst, growths) = (mapping + took, worst.max(took), growths + 1);
        }
        host.bytes_mut()?.copy_from_slice(bytemuck::cast_slice(&[0u32, token as u32]));
        position.span().upload_pinned(&stream, &host, 0..8)?;
        graph.launch(&stream)?;
    }
    stream.synchronize()?;
    let total = started.elapsed();

    // Values are stored as they are: any row of any layer must be the input.
    let expected = floats(KV_HEADS * DIM, 0.01);
    let row = KV_HEADS * DIM * 4;
    let mut checked = 0;
    for token in (0..tokens).step_by(tokens / 64 + 1).chain([tokens - 1]) {
        for values in ranges.iter().skip(1).step_by(4) {
            let mut found = vec![0.0f32; KV_HEADS * DIM];
            // SAFETY: the arena has committed these bytes, and the range outlives the span.
            let span = unsafe { DeviceSpan::from_raw(values.base() + (token * row) as u64, row) };
            span.download(&stream, bytemuck::cast_slice_mut(&mut found))?;
            if found != expected {
                return Err(format!("token {token} of {} is not what was stored", values.label()).into());
            }
            checked += 1;
        }
    }
    let usage = arena.usage();
    let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
    println!("device            {}", context.properties().name);
    println!("tokens            {tokens}, one graph of {} launches replayed for each", graph.kernels());
    println!(
        "reserved          {:.0} MiB in {} ranges, {:.0} us",
        mib(reserved),
        ranges.len(),
        reserving.as_secs_f64() * 1e6
    );
    println!("committed         {:.0} MiB by {growths} growths", mib(usage.committed));
    println!(
        "a growth          {:.0} us in the mean, {:.0} us at worst (several ranges at once)",
        mapping.as_secs_f64() * 1e6 / growths.max(1) as f64,
        worst.as_secs_f64() * 1e6
    );
    println!(
        "a step            {:.1} us, {:.2} % of it mapping",
        total.as_secs_f64() * 1e6 / tokens as f64,
        100.0 * mapping.as_secs_f64() / total.as_secs_f64()
    );
    println!("rows checked      {checked}");
    Ok(())
}
