//! A crowd of clients over HTTP against ember, with all that can go wrong on their side: nothing sticks, nothing leaks,
//! every answer is the one its request gets alone, and who waits is served in turn.
//!
//! Ten seconds; `HIPFIRE_LOAD_SECONDS` makes it longer (benches/results/serve-load.md).

mod serve_support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hipfire::arena::host::HostMemory;
use hipfire::arena::vm::{Mapping, VirtualMemory};
use hipfire::arena::{Arena, KvBackend, Limits};
use hipfire::config::Device;
use hipfire::engine::{Engine, LoadOptions, Loaded, MemoryUse, Options};
use hipfire::error::Result;
use hipfire::model::load;
use hipfire::server::{self, ReasoningField};
use hipfire::weights::Source;
use serde_json::{Value, json};
use serve_support::{Server, receive, wait};

const CLIENTS: usize = 64;
/// Fewer run and wait than there are clients, so that some are turned away.
const PARALLEL: usize = 4;
const QUEUE: usize = 48;
const CONTEXT: usize = 2048;
const CACHE: usize = 8 << 20;
/// A token takes 3.5 KiB and a sequence 0.6 MiB besides: four short ones fit, one of 1,800 tokens does not.
const COMMITTED: usize = 6 << 20;
const HUGE: usize = 1800;

/// The host's memory in pieces of 16 KiB, so that a limit counts what a sequence needs and no more.
struct Fine(HostMemory);
struct FineMapping(Box<dyn Mapping>);

impl VirtualMemory for Fine {
    fn granularity(&self) -> usize {
        self.0.granularity()
    }
    fn reserve(&self, bytes: usize) -> Result<Box<dyn Mapping>> {
        Ok(Box::new(FineMapping(self.0.reserve(bytes)?)))
    }
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Mapping>> {
        self.0.allocate(bytes)
    }
}

impl Mapping for FineMapping {
    fn base(&self) -> u64 {
        self.0.base()
    }
    fn segment(&self) -> usize {
        16 << 10
    }
    fn map(&mut self, piece: Range<usize>) -> Result<()> {
        self.0.map(piece)
    }
    fn allow(&mut self, prefix: usize) -> Result<()> {
        self.0.allow(prefix)
    }
    fn unmap(&mut self, piece: Range<usize>) -> Result<bool> {
        self.0.unmap(piece)
    }
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

/// ember, its sequences in an arena with a limit.
fn ember(arena: &Arena) -> Result<Loaded> {
    let options = LoadOptions {
        max_seq: Some(CONTEXT),
        threads: Some(2),
        device: Device::Cpu,
        prefill_chunk: Some(64),
        parallel: PARALLEL,
        max_queue: QUEUE,
        cache_memory: CACHE,
        ..LoadOptions::default()
    };
    let mut loaded = Loaded::open(&options, &mut |_| {})?;
    let speculation = options.speculation.resolve(true)?;
    let rows = 1 + speculation.depth.most();
    let chosen = load::LoadOptions {
        kv_mode: None,
        kv_backend: None,
        max_sequence: options.max_seq,
        max_rows: 64,
        attention: options.attention,
        rope: options.rope_precision,
        threads: 2,
        sequences: PARALLEL,
        kept_bytes: CACHE,
        rewind_rows: rows,
        mtp: true,
        draft_ids: None,
        gather: true,
        memory_limit: None,
    };
    let source = Source::embedded().expect("ember is inside");
    let model = load::cpu_in(load::open(&source)?, &chosen, arena.clone(), &mut |_| {})?;
    let probe = arena.clone();
    let memory = Arc::new(move || MemoryUse { committed: probe.usage().committed as u64, ..MemoryUse::default() });
    loaded.engine = Engine::start(
        Box::new(model),
        Options {
            prefill_chunk: 64,
            parallel: PARALLEL,
            max_queue: QUEUE,
            cache_memory: CACHE,
            sessions: None,
            grammars: None,
            memory: memory.clone(),
            speculation,
            threads: 2,
        },
    )?;
    loaded.memory = memory;
    Ok(loaded)
}

/// The whole server in this process, where its memory can be limited and looked at.
fn serve(arena: &Arena) -> Server {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let address = TcpListener::bind(SocketAddr::new(local, 0)).unwrap().local_addr().unwrap();
    let options = server::Options {
        host: local,
        port: address.port(),
        keys: Vec::new(),
        cors_origins: Vec::new(),
        aliases: Vec::new(),
        body_limit: 1 << 20,
        grace: Duration::ZERO,
        watchdog: Duration::ZERO,
        reasoning_field: ReasoningField::ReasoningContent,
        settings: Value::Null,
    };
    let arena = arena.clone();
    std::thread::spawn(move || server::serve(options, move |_| ember(&arena)).map(|_| ()));
    wait("the server listens", || TcpStream::connect(address).is_ok());
    let server = Server::at(address);
    server.ready();
    server
}

/// A request, and what it gets alone.
struct Case {
    path: &'static str,
    body: Value,
    alone: String,
}

/// Requests of three APIs, greedy and drawn, with and without thinking; their prompts begin alike.
fn cases() -> Vec<Case> {
    let server = Server::start(&["--cache-memory", "0"]);
    let mut cases = Vec::new();
    for (seed, animal) in ["mouse", "fox", "bird", "cat", "dog", "bear"].into_iter().enumerate() {
        let say = format!("Tell me a story about a brave {animal} who lost something.");
        let messages = json!([{"role": "system", "content": "You tell short stories to children."},
            {"role": "user", "content": say}]);
        let chat = json!({"messages": messages, "max_tokens": 24, "temperature": 0, "reasoning_effort": "none"});
        let mut thinking = chat.clone();
        thinking["reasoning_effort"] = "low".into();
        (thinking["temperature"], thinking["seed"]) = (json!(0.9), json!(seed));
        let plain =
            json!({"prompt": format!("Once upon a time, there was a {animal}"), "max_tokens": 24, "temperature": 0});
        let user = json!([{"role": "user", "content": say}]);
        let message = json!({"model": "ember", "messages": user, "max_tokens": 24, "temperature": 0});
        for (path, body) in [
            ("/v1/chat/completions", chat),
            ("/v1/chat/completions", thinking),
            ("/v1/completions", plain),
            ("/v1/messages", message),
        ] {
            let alone = said(&server.post(path, &body).json());
            assert!(!alone.is_empty(), "{path} {body}");
            cases.push(Case { path, body, alone });
        }
    }
    let texts: BTreeSet<&str> = cases.iter().map(|case| case.alone.as_str()).collect();
    assert!(texts.len() > cases.len() / 2, "a text that got to another request would be noticed: {texts:?}");
    cases
}

/// The text of a whole answer of any of the APIs, or of a chunk of a streamed one; thinking and content in their order.
fn said(answer: &Value) -> String {
    let choice = &answer["choices"][0];
    let texts = [&choice["text"], &choice["message"], &choice["delta"]].into_iter().flat_map(|part| match part {
        Value::Object(message) => {
            [message.get("reasoning_content"), message.get("content")].into_iter().flatten().collect()
        }
        text => vec![text],
    });
    let blocks = answer["content"].as_array().into_iter().flatten().map(|block| &block["text"]);
    texts.chain(blocks).filter_map(Value::as_str).collect()
}

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// What all clients share.
struct Crowd<'a> {
    server: &'a Server,
    cases: &'a [Case],
    counts: Mutex<BTreeMap<&'static str, usize>>,
    /// When a streamed request was sent, and when its first text came.
    waits: Mutex<Vec<(Instant, Instant)>>,
}

const TYPED: [(&str, &str); 1] = [("content-type", "application/json")];

impl Crowd<'_> {
    fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
    }

    fn send(&self, path: &str, body: &Value) -> TcpStream {
        self.server.send("POST", path, &TYPED, body.to_string().as_bytes())
    }

    /// `true` if the queue was full, after a pause that is shorter than the server asks for.
    fn turned_away(&self, status: u16, head: &str, dice: &mut Dice) -> bool {
        if status != 503 {
            return false;
        }
        assert!(head.to_ascii_lowercase().contains("retry-after: "), "{head}");
        self.count("503 queue_full");
        std::thread::sleep(Duration::from_millis(100 + dice.roll(200) as u64));
        true
    }

    /// A prompt of so many tokens, which is refused; behind the headers of a stream no status says so.
    fn refused(&self, tokens: usize, status: u16, code: &'static str, dice: &mut Dice) {
        let stream = dice.roll(2) == 0;
        let body = json!({"prompt": vec![20; tokens], "max_tokens": 1, "stream": stream});
        let answer = receive(self.send("/v1/completions", &body));
        if self.turned_away(answer.status, &answer.head, dice) {
            return;
        }
        let error = match (stream, answer.status) {
            (true, 200) => answer.events().last().expect("an event")["error"].clone(),
            (_, told) => {
                assert_eq!(told, status, "{}", answer.text());
                answer.json()["error"].clone()
            }
        };
        assert_eq!(error["code"], code, "{}", answer.text());
        self.count(code);
    }

    fn whole(&self, case: &Case, dice: &mut Dice) {
        let answer = receive(self.send(case.path, &case.body));
        if !self.turned_away(answer.status, &answer.head, dice) {
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(said(&answer.json()), case.alone, "{} {}", case.path, case.body);
            self.count("whole");
        }
    }

    /// Streamed; `leave_after` so many chunks the client goes away.
    fn streamed(&self, case: &Case, leave_after: Option<usize>, dice: &mut Dice) {
        let mut body = case.body.clone();
        body["stream"] = true.into();
        let sent = Instant::now();
        let mut lines = BufReader::new(self.send(case.path, &body)).lines().map(|line| line.unwrap());
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let status = head[0].split(' ').nth(1).unwrap().parse().unwrap();
        if self.turned_away(status, &head.join("\n"), dice) {
            return;
        }
        assert_eq!(status, 200, "{head:?}");
        let (mut text, mut chunks, mut done) = (String::new(), 0, false);
        // Chunks of the transfer are whole lines here: an event is never split.
        for line in lines {
            let Some(data) = line.strip_prefix("data: ") else { continue };
            if data == "[DONE]" {
                done = true;
                continue;
            }
            let event: Value = serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"));
            assert!(event.get("error").is_none(), "{event}");
            let piece = said(&event);
            if text.is_empty() && !piece.is_empty() {
                self.waits.lock().unwrap().push((sent, Instant::now()));
            }
            text += &piece;
            chunks += 1;
            if leave_after.is_some_and(|after| chunks > after) {
                assert!(case.alone.starts_with(&text), "{text} is no beginning of {}", case.alone);
                return self.count("cancelled while it streamed");
            }
        }
        assert!(done, "the stream ended early: {text}");
        assert_eq!(text, case.alone, "{} {}", case.path, case.body);
        self.count("streamed");
    }

    /// One client, until then.
    fn client(&self, seed: u64, until: Instant) {
        let mut dice = Dice(seed);
        while Instant::now() < until {
            let case = &self.cases[dice.roll(self.cases.len())];
            match dice.roll(60) {
                0 => self.refused(CONTEXT + 1 + dice.roll(50), 400, "context_length_exceeded", &mut dice),
                1 => self.refused(HUGE, 507, "insufficient_memory", &mut dice),
                2 | 3 => {
                    let text = case.body.to_string();
                    let length = text.len().to_string();
                    let half = &text.as_bytes()[..text.len() / 2];
                    let headers = [TYPED[0], ("content-length", length.as_str())];
                    drop(self.server.send("POST", case.path, &headers, half));
                    self.count("gone in the middle of the body");
                }
                4..=7 => {
                    let mut socket = self.send(case.path, &case.body);
                    std::thread::sleep(Duration::from_millis(dice.roll(400) as u64));
                    let _ = socket.flush();
                    drop(socket);
                    self.count("gone before the answer");
                }
                8..=13 if case.path != "/v1/messages" => {
                    let after = dice.roll(16);
                    self.streamed(case, Some(after), &mut dice);
                }
                14..=36 if case.path != "/v1/messages" => self.streamed(case, None, &mut dice),
                _ => self.whole(case, &mut dice),
            }
        }
    }
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Of requests that were sent later, the most whose text came earlier.
fn most_overtakers(waits: &mut [(Instant, Instant)]) -> usize {
    waits.sort();
    let overtakers = |at: usize| {
        let (_, first) = waits[at];
        waits[at + 1..].iter().take_while(|(sent, _)| *sent < first).filter(|(_, other)| *other < first).count()
    };
    (0..waits.len()).map(overtakers).max().unwrap_or_default()
}

#[test]
fn a_crowd_over_http_leaves_nothing_stuck_and_nothing_behind() {
    let seconds = std::env::var("HIPFIRE_LOAD_SECONDS").map_or(10, |text| text.parse().expect("a number of seconds"));
    let cases = cases();
    let limits = Limits { committed: Some(COMMITTED), ..Limits::default() };
    let arena = Arena::new(Box::new(Fine(HostMemory::new())), KvBackend::Vmm, limits);
    let server = serve(&arena);
    let crowd = Crowd { server: &server, cases: &cases, counts: Mutex::default(), waits: Mutex::default() };
    let run = |part: u64, time: Duration| {
        let until = Instant::now() + time;
        std::thread::scope(|scope| {
            for seed in 0..CLIENTS as u64 {
                let crowd = &crowd;
                scope.spawn(move || crowd.client(part * 1000 + seed, until));
            }
        });
        (arena.usage(), resident())
    };
    // A fifth to warm up: the cache fills, threads start.
    let fifth = Duration::from_secs(seconds) / 5;
    let (before, memory) = run(1, fifth);
    let (middle, memory_middle) = run(2, fifth * 2);
    let (after, memory_after) = run(3, fifth * 2);

    let counts = crowd.counts.into_inner().unwrap();
    let mut waits = crowd.waits.into_inner().unwrap();
    let overtakers = most_overtakers(&mut waits);
    let mut times: Vec<Duration> = waits.iter().map(|(sent, first)| *first - *sent).collect();
    times.sort();
    let part = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64();
    println!("{seconds} s, {CLIENTS} clients: {counts:#?}");
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    for (name, usage, memory) in
        [("begin", before, memory), ("middle", middle, memory_middle), ("end", after, memory_after)]
    {
        println!("{name}: resident {:.1} MiB, arena {usage:?}", mib(memory));
    }
    println!(
        "to the first text: median {:.2} s, 90 % {:.2} s, 99 % {:.2} s, longest {:.2} s; at most {overtakers} overtook",
        part(0.5),
        part(0.9),
        part(0.99),
        part(1.0)
    );
    let metrics = server.get("/metrics").text();
    println!("{metrics}");

    for what in [
        "503 queue_full",
        "context_length_exceeded",
        "insufficient_memory",
        "gone in the middle of the body",
        "gone before the answer",
        "cancelled while it streamed",
        "whole",
        "streamed",
    ] {
        assert!(counts.get(what).is_some_and(|&count| count > 0), "nobody met '{what}': {counts:?}");
    }

    // Every error is counted once; nobody went away who was to be told one of these.
    for code in ["context_length_exceeded", "insufficient_memory"] {
        let line = format!("hipfire_errors_total{{kind=\"{code}\"}} {}", counts[code]);
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }

    // Those that went away are noticed within a step.
    wait("nobody runs or waits", || {
        let requests = server.get("/health").json()["requests"].clone();
        (requests["running"] == 0) && (requests["waiting"] == 0)
    });
    let slots = server.get("/slots").json();
    assert!(slots.as_array().unwrap().iter().all(|slot| slot["is_processing"] == false), "{slots}");
    let case = &cases[0];
    assert_eq!(said(&server.post(case.path, &case.body).json()), case.alone, "and it serves on");

    // Every slot keeps its ranges from the first request to the last.
    for usage in [middle, after] {
        assert_eq!((usage.ranges, usage.reserved), (before.ranges, before.reserved), "{before:?} {usage:?}");
        assert_eq!((usage.retired_ranges, usage.retired), (0, 0), "{usage:?}");
        assert!(usage.committed <= COMMITTED, "{usage:?}");
    }
    // What may come and go: the cache, and the arena's limit. One sequence's state a request would be far more.
    for memory_then in [memory_middle, memory_after] {
        let grown = memory_then.saturating_sub(memory);
        assert!(grown <= CACHE + COMMITTED, "the process grew by {grown} bytes");
    }
    // In turn: each of the others may be on its way to the queue at the same moment, and no client is there twice.
    assert!(overtakers < CLIENTS, "{overtakers} that came later were served earlier");
}
