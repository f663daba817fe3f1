//! Byte-level BPE between text and ids (spec 6.1).
//!
//! Owns: the vocabulary, the added tokens beside it, and encoding with or without recognising them.
//! Always true: the BPE model below knows no added token, so `encode_plain` cannot produce one from any text; added
//! tokens are found by one matcher here (leftmost, longest), for raw text and for rendered templates alike.
//! Not here: decoding a stream (`stream`), the chat template (`template`).

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use serde::Deserialize;
use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use crate::error::{Error, Result};

/// The released pre-tokenizer, "qwen35" in GGUF (spec 6.1): combining marks belong to words, digits stand alone.
pub const QWEN35_PATTERN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// A token that stands beside the BPE vocabulary and is matched as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// Its id.
    pub id: u32,
    /// Its literal text.
    pub content: String,
    /// Left out of decoded text (`<|im_end|>` is, `<think>` is not).
    pub special: bool,
}

/// A piece of text between, or exactly, added tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'t> {
    /// Text in which no added token occurs.
    Text(&'t str),
    /// The id of an added token.
    Added(u32),
}

/// Text to ids and ids to bytes. Immutable, shared between requests.
pub struct Tokenizer {
    bpe: tokenizers::Tokenizer,
    /// Sorted by id.
    added: Vec<AddedToken>,
    /// Patterns are `added` in its order.
    matcher: AhoCorasick,
    /// Bytes of all tokens behind each other; token `i` is `bytes[ends[i - 1]..ends[i]]`. An unused id has none.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// Named tokens of tokenizer_config.json (`eos_token`, ...), as templates see them.
    named: Vec<(&'static str, String)>,
}

#[derive(Deserialize)]
struct AddedEntry {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

impl Tokenizer {
    /// Reads tokenizer.json and, for its named tokens, tokenizer_config.json.
    ///
    /// Errors: `Error::Model` naming the file and what is wrong with it.
    pub fn from_json(tokenizer_json: &[u8], tokenizer_config: Option<&[u8]>) -> Result<Tokenizer> {
        let fail = |problem: String| Error::model(format!("tokenizer.json cannot be used: {problem}"));
        let mut json: Value = serde_json::from_slice(tokenizer_json).map_err(|e| fail(e.to_string()))?;
        let root = json.as_object_mut().ok_or_else(|| fail("it is not a JSON object".into()))?;
        let entries: Vec<AddedEntry> = match root.remove("added_tokens") {
            None | Some(Value::Null) => Vec::new(),
            Some(list) => serde_json::from_value(list).map_err(|e| fail(format!("added_tokens: {e}")))?,
        };
        if let Some(odd) = entries.iter().find(|e| e.single_word || e.lstrip || e.rstrip) {
            return Err(fail(format!(
                "added token '{}' asks for single_word, lstrip or rstrip, which no model of this architecture does",
                odd.content
            )));
        }
        // These change the ids behind the caller's back: cut, fill up, or frame the text.
        for framing in ["truncation", "padding", "post_processor"] {
            root.remove(framing);
        }
        let mut bpe: tokenizers::Tokenizer = serde_json::from_value(json).map_err(|e| fail(e.to_string()))?;
        bpe.with_decoder(None::<tokenizers::DecoderWrapper>);
        let added = entries.into_iter().map(|e| AddedToken { id: e.id, content: e.content, special: e.special });
        let vocabulary = bpe.get_vocab(false);
        let named = tokenizer_config.map(named_tokens).transpose()?.unwrap_or_default();
        Tokenizer::assemble(bpe, vocabulary.into_iter(), added.collect(), named)
    }

    /// Builds the same tokenizer from the lists a GGUF file holds: `tokens` by id (added ones included), `merges` as
    /// "left right", and the added tokens among them. NFC and [`QWEN35_PATTERN`] are the architecture's.
    ///
    /// Errors: `Error::Model` naming the list and the entry that does not fit.
    pub fn from_parts(tokens: Vec<String>, merges: Vec<String>, added: Vec<AddedToken>) -> Result<Tokenizer> {
        let fail = |problem: String| Error::model(format!("the tokenizer in the model file cannot be used: {problem}"));
        let split = |(i, merge): (usize, String)| match merge.split_once(' ') {
            Some((left, right)) if !left.is_empty() && !right.is_empty() => Ok((left.to_owned(), right.to_owned())),
            _ => Err(fail(format!("merge {i} is '{merge}', expected two tokens with a space between"))),
        };
        let merges = merges.into_iter().enumerate().map(split).collect::<Result<Vec<_>>>()?;
        let count = u32::try_from(tokens.len()).map_err(|_| fail("it has more than 2^32 tokens".into()))?;
        let vocabulary: HashMap<String, u32> = tokens.into_iter().zip(0..count).collect();
        let model = BPE::builder()
            .vocab_and_merges(vocabulary.clone().into_iter().collect::<tokenizers::models::bpe::Vocab>(), merges)
            .build()
            .map_err(|e| fail(e.to_string()))?;
        let pattern = SplitPattern::Regex(QWEN35_PATTERN.to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(|e| fail(e.to_string()))?;
        let mut bpe = tokenizers::Tokenizer::new(model);
        bpe.with_normalizer(Some(NFC));
        bpe.with_pre_tokenizer(Some(Sequence::new(vec![split.into(), ByteLevel::new(false, true, false).into()])));
        Tokenizer::assemble(bpe, vocabulary.into_iter(), added, Vec::new())
    }

    fn assemble(
        bpe: tokenizers::Tokenizer,
        vocabulary: impl Iterator<Item = (String, u32)>,
        mut added: Vec<AddedToken>,
        named: Vec<(&'static str, String)>,
    ) -> Result<Tokenizer> {
        added.sort_by_key(|t| t.id);
        if let Some(empty) = added.iter().find(|t| t.content.is_empty()) {
            return Err(Error::model(format!("added token {} of the tokenizer has no text", empty.id)));
        }
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(added.iter().map(|t| &t.content))
            .map_err(|e| Error::model(format!("the tokenizer's added tokens cannot be matched: {e}")))?;
        let (bytes, ends) = byte_table(vocabulary, &added)?;
        Ok(Tokenizer { bpe, added, matcher, bytes, ends, named })
    }

    /// Ids of `text` in which nothing is an added token, whatever it looks like.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        let (mut ids, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(cut(rest));
            let encoding = self.bpe.encode_fast(part, false);
            ids.extend_from_slice(encoding.map_err(|e| Error::model(format!("the tokenizer failed: {e}")))?.get_ids());
            rest = behind;
        }
        Ok(ids)
    }

    /// Ids of `text` in which every added token's text is that token: for raw prompts and scoring.
    pub fn encode_raw(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for piece in self.pieces(text) {
            match piece {
                Piece::Text(text) => ids.extend(self.encode_plain(text)?),
                Piece::Added(id) => ids.push(id),
            }
        }
        Ok(ids)
    }

    /// `text` cut at its added tokens; empty text between two of them is left out.
    pub fn pieces<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let mut done = 0;
        for found in self.matcher.find_iter(text) {
            if found.start() > done {
                pieces.push(Piece::Text(&text[done..found.start()]));
            }
            pieces.push(Piece::Added(self.added[found.pattern().as_usize()].id));
            done = found.end();
        }
        if done < text.len() {
            pieces.push(Piece::Text(&text[done..]));
        }
        pieces
    }

    /// One more than the largest id that has a text. The model's table may be longer (padding).
    pub fn vocabulary(&self) -> usize {
        self.ends.len()
    }

    /// The bytes a token stands for; empty for an id without a text.
    pub fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// All added tokens, by id.
    pub fn added_tokens(&self) -> &[AddedToken] {
        &self.added
    }

    /// The id of the added token that reads `text`.
    pub fn added_id(&self, text: &str) -> Option<u32> {
        self.added.iter().find(|t| t.content == text).map(|t| t.id)
    }

    /// Whether decoded text leaves this id out.
    pub fn is_special(&self, id: u32) -> bool {
        self.added.binary_search_by_key(&id, |t| t.id).is_ok_and(|at| self.added[at].special)
    }

    /// The named tokens of tokenizer_config.json, such as ("eos_token", "<|im_end|>").
    pub fn named_tokens(&self) -> &[(&'static str, String)] {
        &self.named
    }

    /// The chat's end: `eos_token` of tokenizer_config.json. Not the id that resets the n-gram context (spec 7, 42).
    pub fn eos(&self) -> Option<u32> {
        let (_, text) = self.named.iter().find(|(name, _)| *name == "eos_token")?;
        self.added_id(text)
    }

    /// The text of `ids`, special tokens left out and invalid UTF-8 replaced.
    pub fn decode(&self, ids: &[u32]) -> String {
        let shown = ids.iter().filter(|&&id| !self.is_special(id));
        let bytes: Vec<u8> = shown.flat_map(|&id| self.bytes(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// How many bytes of `text` to encode in one go.
///
/// The regex gives up after 10^6 backtracking steps and leaves everything behind that as one word (measured with runs
/// of 1.1 million equal characters), so longer text is cut where the pattern certainly cuts too: before a space that
/// follows a visible character, or between a line feed and a visible character. Only where half a megabyte has
/// neither, the cut may part a word.
fn cut(text: &str) -> usize {
    const MOST: usize = 1 << 19;
    if text.len() <= MOST {
        return text.len();
    }
    let most = text.floor_char_boundary(MOST);
    let mut chars = text[..most].char_indices().rev();
    let Some((mut at, mut next)) = chars.next() else { return text.len() };
    for (before, previous) in chars {
        if next == ' ' && !previous.is_whitespace() || previous == '\n' && !next.is_whitespace() {
            return at;
        }
        (at, next) = (before, previous);
    }
    most
}

/// The `*_token` strings of tokenizer_config.json, written as text or as `{"content": text}`.
fn named_tokens(json: &[u8]) -> Result<Vec<(&'static str, String)>> {
    let fail = |problem: String| Error::model(format!("tokenizer_config.json cannot be used: {problem}"));
    let config: Value = serde_json::from_slice(json).map_err(|e| fail(e.to_string()))?;
    let mut named = Vec::new();
    for name in ["bos_token", "eos_token", "pad_token", "unk_token"] {
        match &config[name] {
            Value::Null => {}
            Value::String(text) => named.push((name, text.clone())),
            other => match other["content"].as_str() {
                Some(text) => named.push((name, text.to_owned())),
                None => return Err(fail(format!("{name} is {other}, expected a text"))),
            },
        }
    }
    Ok(named)
}

/// Bytes of every id, behind each other, and where each ends.
fn byte_table(vocabulary: impl Iterator<Item = (String, u32)>, added: &[AddedToken]) -> Result<(Vec<u8>, Vec<u32>)> {
    // A stray huge id must not become a huge table: the largest published vocabulary is a hundredth of this.
    const MOST_IDS: u32 = 1 << 25;
    let alphabet = byte_alphabet();
    let mut texts: Vec<(u32, Vec<u8>)> = Vec::new();
    for (text, id) in vocabulary {
        let ordinary: Option<Vec<u8>> = text.chars().map(|c| alphabet.get(&c).copied()).collect();
        texts.push((id, ordinary.unwrap_or_else(|| text.into_bytes())));
    }
    // Stable sort: an added token's literal text comes after, and so replaces, its entry in the vocabulary.
    texts.extend(added.iter().map(|t| (t.id, t.content.clone().into_bytes())));
    texts.sort_by_key(|(id, _)| *id);
    let (mut bytes, mut ends) = (Vec::new(), Vec::<u32>::new());
    for (at, (id, text)) in texts.iter().enumerate() {
        if *id >= MOST_IDS {
            return Err(Error::model(format!("the tokenizer gives a token the id {id}, which no vocabulary reaches")));
        }
        if texts.get(at + 1).is_some_and(|next| next.0 == *id) {
            continue;
        }
        ends.resize(*id as usize, bytes.len() as u32);
        bytes.extend_from_slice(text);
        let end = u32::try_from(bytes.len()).map_err(|_| Error::model("the tokenizer's tokens exceed 4 GiB"))?;
        ends.push(end);
    }
    Ok((bytes, ends))
}

/// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the 68 others for U+0100 upwards, in order.
fn byte_alphabet() -> HashMap<char, u8> {
    let mut others = 0x100..;
    (0..=255u8)
        .filter_map(|byte| {
            let printable = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            let code = if printable { u32::from(byte) } else { others.next()? };
            Some((char::from_u32(code)?, byte))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_alphabet_is_a_bijection_with_the_known_landmarks() {
        let alphabet = byte_alphabet();
        assert_eq!(alphabet.len(), 256);
        assert_eq!(alphabet[&'Ġ'], b' ');
        assert_eq!(alphabet[&'Ċ'], b'\n');
        assert_eq!(alphabet[&'Ń'], 0xad);
        assert_eq!(alphabet[&'~'], b'~');
    }

    #[test]
    fn a_garbled_or_odd_file_is_named_with_its_problem() {
        for (json, part) in [
            (&b"{\"model\": "[..], "EOF"),
            (b"[]", "not a JSON object"),
            (b"{\"added_tokens\": [{\"id\": \"x\"}]}", "added_tokens"),
            (b"{\"added_tokens\": [{\"id\": 1, \"content\": \"a\", \"lstrip\": true}]}", "lstrip"),
            (b"{\"version\": \"1.0\", \"model\": {\"type\": \"BPE\"}}", "tokenizer.json"),
        ] {
            match Tokenizer::from_json(json, None) {
                Err(Error::Model(message)) => {
                    assert!(message.contains("tokenizer.json") && message.contains(part), "{message}");
                }
                other => panic!("{:?}", other.map(|_| ())),
            }
        }
    }

    #[test]
    fn parts_that_do_not_fit_together_are_refused() {
        let tokens = || vec!["a".to_owned(), "b".to_owned()];
        let far = AddedToken { id: u32::MAX, content: "<x>".into(), special: true };
        let empty = AddedToken { id: 2, content: String::new(), special: true };
        for (merges, added) in
            [(vec!["ab".into()], vec![]), (vec!["a c".into()], vec![]), (vec![], vec![far]), (vec![], vec![empty])]
        {
            assert!(matches!(Tokenizer::from_parts(tokens(), merges, added), Err(Error::Model(_))));
        }
    }
}
