//! Incremental decoding and stop strings: how the input is cut does not change what comes out.

use hipfire::text::{Detokenizer, StopStrings, Tokenizer};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

static EMBER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(Tokenizer::from_json(include_bytes!("../models/ember/tokenizer.json"), None).unwrap()));

fn stream(ids: &[u32]) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(EMBER.clone());
    let mut pieces: Vec<String> = ids.iter().map(|&id| detokenizer.push(id)).collect();
    pieces.push(detokenizer.finish());
    pieces
}

#[test]
fn special_tokens_are_left_out_and_other_added_tokens_are_text() {
    assert_eq!(
        stream(&[1, 3, 4, 5, 6, 7, 8, 2, 0]).concat(),
        "<think></think><tool_call></tool_call><tool_response></tool_response>"
    );
}

#[test]
fn characters_arrive_whole() {
    let text = "naïve \u{1f525}\u{1f468}\u{200d}\u{1f469} 日本 ok";
    let ids = EMBER.encode_plain(text).unwrap();
    assert!(ids.len() > text.chars().count(), "the test needs characters of several tokens");
    let pieces = stream(&ids);
    assert_eq!(pieces.concat(), text);
    assert!(pieces.iter().all(|p| !p.contains('\u{fffd}')));
}

#[test]
fn a_character_cut_short_is_replaced_once() {
    let ids = EMBER.encode_plain("\u{1f525}").unwrap();
    assert_eq!(stream(&ids[..ids.len() - 1]).concat(), "\u{fffd}");
    assert_eq!(stream(&[&ids[..1], &[3], &ids[..]].concat()).concat(), "\u{fffd}<think>\u{1f525}");
}

/// What a reader of the whole text would cut: before the stop string that is complete first.
fn cut(text: &str, stops: &[String]) -> Option<usize> {
    stops.iter().filter_map(|s| text.find(s.as_str()).map(|at| (at + s.len(), at))).min().map(|(_, at)| at)
}

proptest! {
    #[test]
    fn decoding_one_by_one_equals_decoding_the_whole(ids in prop::collection::vec(0u32..4100, 0..60)) {
        let shown = ids.iter().filter(|&&id| !EMBER.is_special(id));
        let bytes: Vec<u8> = shown.flat_map(|&id| EMBER.bytes(id)).copied().collect();
        prop_assert_eq!(stream(&ids).concat(), String::from_utf8_lossy(&bytes));
        prop_assert_eq!(EMBER.decode(&ids), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn bytes_in_any_order_decode_as_a_whole(bytes in prop::collection::vec(prop::sample::select(
        vec![b'a', 0x80, 0x9f, 0xbf, 0xc3, 0xe2, 0xed, 0xf0, 0xf4, 0xff]), 0..24)) {
        // Ids of single bytes: their tokens are one byte long and not added.
        let id = |byte: u8| (9..4096).find(|&id| EMBER.bytes(id) == [byte]).unwrap();
        let ids: Vec<u32> = bytes.iter().map(|&b| id(b)).collect();
        prop_assert_eq!(stream(&ids).concat(), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_cut_of_the_text_stops_at_the_same_place(
        pieces in prop::collection::vec("[abé]{0,3}", 0..12),
        stops in prop::collection::vec("[abé]{1,4}", 0..4),
    ) {
        let text = pieces.concat();
        let expected = cut(&text, &stops);
        let mut filter = StopStrings::new(stops.clone()).unwrap();
        let (mut shown, mut stopped) = (String::new(), false);
        for piece in &pieces {
            let (part, now) = filter.push(piece);
            shown.push_str(&part);
            stopped = now;
        }
        shown.push_str(&filter.finish());
        prop_assert_eq!(stopped, expected.is_some());
        prop_assert_eq!(shown, &text[..expected.unwrap_or(text.len())]);
    }

    #[test]
    fn nothing_is_held_back_that_no_stop_string_begins_with(text in "[ab]{1,12}", stop in "[ab]{1,4}") {
        let mut filter = StopStrings::new(vec![stop.clone()]).unwrap();
        let (shown, stopped) = filter.push(&text);
        if !stopped {
            let held = &text[shown.len()..];
            prop_assert!(stop.starts_with(held));
        }
    }
}
