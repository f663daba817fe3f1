//! The tokenizer on the embedded model's own files, against properties of spec 6.1 and against its own parts.

use hipfire::error::Error;
use hipfire::text::tokenizer::{AddedToken, Piece, Tokenizer};
use proptest::prelude::*;
use serde_json::Value;
use std::sync::LazyLock;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::{NormalizedString, Normalizer};

const JSON: &[u8] = include_bytes!("../models/ember/tokenizer.json");
const CONFIG: &[u8] = include_bytes!("../models/ember/tokenizer_config.json");

static EMBER: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::from_json(JSON, Some(CONFIG)).unwrap());
static PARTS: LazyLock<Tokenizer> = LazyLock::new(rebuilt);
/// The library's own idea of the same file, added tokens and all.
static LIBRARY: LazyLock<tokenizers::Tokenizer> = LazyLock::new(|| tokenizers::Tokenizer::from_bytes(JSON).unwrap());

/// Ember from the lists a GGUF file would hold.
fn rebuilt() -> Tokenizer {
    let json: Value = serde_json::from_slice(JSON).unwrap();
    let mut tokens = vec![String::new(); EMBER.vocabulary()];
    for (token, id) in json["model"]["vocab"].as_object().unwrap() {
        tokens[id.as_u64().unwrap() as usize] = token.clone();
    }
    let pair = |m: &Value| format!("{} {}", m[0].as_str().unwrap(), m[1].as_str().unwrap());
    let merges = json["model"]["merges"].as_array().unwrap().iter().map(pair).collect();
    let added = json["added_tokens"].as_array().unwrap().iter().map(|t| AddedToken {
        id: t["id"].as_u64().unwrap() as u32,
        content: t["content"].as_str().unwrap().to_owned(),
        special: t["special"].as_bool().unwrap(),
    });
    Tokenizer::from_parts(tokens, merges, added.collect()).unwrap()
}

const CORPUS: &[&str] = &[
    "",
    " ",
    "The old lighthouse keeper's lamp, it's said, wouldn't burn: he'd've known; I'LL SEE.",
    "What is 15 * 7? 12345678901234567890 3.14159 1e-5 ١٢٣ ²³½ Ⅷ",
    "cafe\u{301} caf\u{e9} n\u{303}o A\u{30a}\u{327} \u{1100}\u{1161}\u{11a8} \u{212b} \u{fb01}",
    "हिन्दी में कुछ शब्द, தமிழ் எழுத்து, ภาษาไทย, עִבְרִית, العَرَبِيَّة",
    "日本語のテキスト。中文字符，한국어 문장",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 e\u{20e3} 1\u{fe0f}\u{20e3}",
    "a\r\nb\r\n\r\nc\rd\n\n\n  e\n  \n\tf\t\t g   \u{a0}h\u{3000}i   ",
    "    indented\n        more\n\n\n    back\n",
    "trailing spaces   \n   \n   ",
    "fn main() { println!(\"{}\", x[0]); } // --> <= >= != && ||\n#!/bin/sh\n",
    "<|im_start|>user\nhi<|im_end|>\n<think>\n</think><tool_call></tool_call>",
    "\u{0}\u{1}\u{7f}\u{200b}\u{feff}\u{fdd0}\u{ffff}\u{10ffff}",
    "mixed👍text\u{301}s  \u{301} 9\u{301}x _under__score_ ...!!! ",
];

#[test]
fn ids_agree_with_the_library_with_added_tokens_recognised() {
    for text in CORPUS {
        assert_eq!(EMBER.encode_raw(text).unwrap(), LIBRARY.encode(*text, false).unwrap().get_ids(), "{text:?}");
    }
}

#[test]
fn parts_and_file_give_the_same_ids_and_bytes() {
    for text in CORPUS {
        assert_eq!(PARTS.encode_raw(text).unwrap(), EMBER.encode_raw(text).unwrap(), "{text:?}");
        assert_eq!(PARTS.encode_plain(text).unwrap(), EMBER.encode_plain(text).unwrap(), "{text:?}");
    }
    assert_eq!(PARTS.added_tokens(), EMBER.added_tokens());
    assert!((0..5000).all(|id| PARTS.bytes(id) == EMBER.bytes(id)));
}

#[test]
fn digits_stand_alone_and_marks_belong_to_words() {
    assert_eq!(EMBER.encode_plain("7777").unwrap().len(), 4);
    // The mark is composed by NFC, so both spellings are one word.
    assert_eq!(EMBER.encode_plain("cafe\u{301}").unwrap(), EMBER.encode_plain("caf\u{e9}").unwrap());
}

#[test]
fn plain_text_never_holds_an_added_id() {
    for token in EMBER.added_tokens() {
        let ids = EMBER.encode_plain(&format!("a{0}b {0}{0}", token.content)).unwrap();
        assert!(ids.iter().all(|&id| id > 8), "{}: {ids:?}", token.content);
        assert_eq!(EMBER.encode_raw(&token.content).unwrap(), [token.id]);
        assert_eq!(EMBER.added_id(&token.content), Some(token.id));
        assert_eq!(EMBER.bytes(token.id), token.content.as_bytes());
    }
    assert_eq!(EMBER.pieces("a<think><think>"), [Piece::Text("a"), Piece::Added(3), Piece::Added(3)]);
}

#[test]
fn named_tokens_special_ids_and_sizes_are_those_of_the_files() {
    assert_eq!(EMBER.vocabulary(), 4096);
    assert_eq!(EMBER.eos(), Some(2));
    assert_eq!((0..4096).filter(|&id| EMBER.is_special(id)).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(EMBER.bytes(4096).is_empty() && EMBER.bytes(u32::MAX).is_empty() && !EMBER.is_special(u32::MAX));
    assert_eq!(EMBER.decode(&[1, 3, 2]), "<think>");
    let wrong = Tokenizer::from_json(JSON, Some(b"{\"eos_token\": 3}"));
    assert!(matches!(wrong, Err(Error::Model(m)) if m.contains("eos_token")));
}

#[test]
fn a_run_longer_than_the_regex_budget_leaves_the_text_behind_it_split_by_the_pattern() {
    for unit in [" ", "\n", "!", "a"] {
        let count = 1_200_000;
        let text = format!("{}x don'The 12", unit.repeat(count));
        // As one word, the tail would hold the token "The"; the pattern cuts it after 't.
        let long = EMBER.encode_plain(&text).unwrap();
        let tail = EMBER.encode_plain(" don'The 12").unwrap();
        assert_eq!(long[long.len() - tail.len()..], tail, "{unit:?}");
        assert_eq!(EMBER.decode(&long), text);
    }
}

#[test]
fn long_ordinary_text_is_encoded_as_its_lines_are() {
    let line = "The keeper's 3 lamps,  they say, burn on.\n\tEr sagte: \u{201e}gut\u{201c}.\n";
    let ids = EMBER.encode_plain(line).unwrap();
    let count = (1 << 20) / line.len() + 1;
    assert_eq!(EMBER.encode_plain(&line.repeat(count)).unwrap(), ids.repeat(count));
}

proptest! {
    #[test]
    fn both_constructors_agree_with_the_library_and_nothing_is_lost(
        text in "(\\PC|[ \\t\\r\\n]|\\p{M}|<think>|[0-9]|'s){0,60}",
    ) {
        let ids = EMBER.encode_raw(&text).unwrap();
        let expected = LIBRARY.encode(text.as_str(), false).unwrap().get_ids().to_vec();
        prop_assert_eq!(&ids, &expected);
        prop_assert_eq!(&ids, &PARTS.encode_raw(&text).unwrap());
        let plain = EMBER.encode_plain(&text).unwrap();
        let mut composed = NormalizedString::from(text);
        NFC.normalize(&mut composed).unwrap();
        prop_assert_eq!(EMBER.decode(&plain), composed.get());
    }
}
