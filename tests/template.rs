//! The chat template against the hashes and the rules of spec 6.2, and the safety of user text.

use hipfire::error::Error;
use hipfire::text::{Conversation, Message, Role, Template, Tokenizer, ToolCall};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const CONFIG: &[u8] = include_bytes!("../models/ember/tokenizer_config.json");
const SOURCE: &str = include_str!("../models/ember/chat_template.jinja");

static EMBER: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_json(include_bytes!("../models/ember/tokenizer.json"), Some(CONFIG)).unwrap());
static TEMPLATE: LazyLock<Template> = LazyLock::new(|| Template::new(SOURCE, &EMBER).unwrap());

const XHIGH: &str = "Reasoning effort is set to xhigh. Please think carefully through the task, validate key \
    assumptions, consider plausible alternatives, and prioritize correctness, consistency, and clarity in the final \
    answer.";
const TOOLS: &str = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
const FORMAT: &str = "\n</tools>\n\n\
    If you choose to call a function ONLY reply in the following format with NO suffix:\n\n<tool_call>\n\
    <function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n\
    <parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n\
    </parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n\
    - Function calls MUST follow the specified format: an inner <function=...></function> block must be nested \
    within <tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n\
    - You may provide optional reasoning for your function call in natural language BEFORE the function call, but \
    NOT after\n\
    - If there is no function call available, answer the question like normal with your current knowledge and do \
    not tell the user about function calls\n</IMPORTANT>";

fn chat(messages: Vec<Message>) -> Conversation {
    Conversation { messages, add_generation_prompt: true, ..Default::default() }
}

/// Without the effort's sentence, so that a test's expectation shows only what it is about.
fn medium(messages: Vec<Message>) -> Conversation {
    Conversation { reasoning_effort: Some("medium".into()), ..chat(messages) }
}

fn say(role: Role, content: &str) -> Message {
    Message::new(role, content)
}

fn call(name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: Some("call_1".into()), name: name.into(), arguments }
}

fn render(conversation: &Conversation) -> String {
    TEMPLATE.render(conversation).unwrap().text()
}

fn refusal(conversation: &Conversation) -> String {
    match TEMPLATE.render(conversation) {
        Err(Error::Invalid(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_four_prompts_of_the_spec_have_their_hashes() {
    let base = chat(vec![say(Role::User, "What is 15 * 7?")]);
    let effort = |e: &str| Conversation { reasoning_effort: Some(e.into()), ..base.clone() };
    let off = Conversation { enable_thinking: Some(false), ..base.clone() };
    for (conversation, thinking, hash) in [
        (base.clone(), true, "7f1de0c2b7fda736d90625a80eb094ccc0d1ee28a6b5d9004f611b62e5b11a35"),
        (effort("xhigh"), true, "7f1de0c2b7fda736d90625a80eb094ccc0d1ee28a6b5d9004f611b62e5b11a35"),
        (effort("low"), true, "51f41ace41f5cea2034d5994fc0d7a3383a22c1f71c60ef9adf3a448634ccd0e"),
        (effort("medium"), true, "20ba983e045cdb9a66090a79cccd56941461be2610d5f334da256a388fe83abf"),
        (off, false, "8475fd3ecb780f1b067593215c95febad65f330f8ca5d6d34045f649cb6d7fd4"),
    ] {
        let rendered = TEMPLATE.render(&conversation).unwrap();
        let digest = Sha256::digest(rendered.text());
        assert_eq!(digest.iter().map(|b| format!("{b:02x}")).collect::<String>(), hash);
        assert_eq!(rendered.opens_thinking(), thinking);
        // Nothing in it is the user's but plain words, so all added tokens are the template's.
        assert_eq!(rendered.ids(&EMBER).unwrap(), EMBER.encode_raw(&rendered.text()).unwrap());
    }
}

#[test]
fn efforts_of_other_apis_are_mapped_and_junk_is_refused() {
    let mut c = chat(vec![say(Role::User, "x")]);
    for (word, effort) in
        [("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "xhigh"), ("xhigh", "xhigh")]
    {
        c.set_effort(word).unwrap();
        assert_eq!((c.reasoning_effort.as_deref(), c.enable_thinking), (Some(effort), None));
    }
    c.set_effort("none").unwrap();
    assert_eq!(c.enable_thinking, Some(false));
    assert!(matches!(c.set_effort("hard"), Err(Error::Invalid(m)) if m.contains("'hard'")));
    c = Conversation { reasoning_effort: Some("<high>".into()), enable_thinking: None, ..c };
    assert_eq!(
        refusal(&c),
        "Unexpected reasoning effort <high>. Supported types are xhigh (default), medium, and low."
    );
}

#[test]
fn tools_and_the_system_text_follow_the_effort_in_one_system_block() {
    let tool = json!({"type": "function", "function": {"name": "add", "description": "a < b & 'c' \"d\" é",
        "parameters": {"type": "object", "properties": {"x": {"type": "number", "default": 1e-7}},
        "required": ["x"]}}});
    let c = Conversation {
        tools: vec![tool.clone(), tool],
        ..chat(vec![say(Role::System, " Be brief. \n"), say(Role::User, "hi")])
    };
    let line = "{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"a < b & 'c' \\\"d\\\" \
        é\", \"parameters\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"number\", \"default\": \
        1e-07}}, \"required\": [\"x\"]}}}";
    assert_eq!(
        render(&c),
        format!(
            "<|im_start|>system\n{XHIGH}\n\n{TOOLS}\n{line}\n{line}{FORMAT}\n\nBe brief.<|im_end|>\n\
                <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n"
        )
    );
}

#[test]
fn consecutive_tool_messages_share_a_user_turn_and_calls_carry_their_arguments() {
    let both = vec![
        call("read", json!({"items": "a\n b", "n": 2, "f": 1.0, "o": {"k": [true, null, "ü"]}})),
        call("stop", json!("{}")),
    ];
    let asks =
        Message { tool_calls: both, reasoning_content: Some(" plan ".into()), ..say(Role::Assistant, "Looking. ") };
    let silent =
        Message { tool_calls: vec![call("one", json!("{\"b\": \"x\", \"a\": 1}"))], ..say(Role::Assistant, "") };
    let c = medium(vec![
        say(Role::User, "go"),
        asks,
        say(Role::Tool, "first"),
        say(Role::Tool, "second"),
        silent,
        say(Role::Tool, "third"),
    ]);
    let expected = "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n<think>\nplan\n</think>\n\nLooking.\n\n\
        <tool_call>\n<function=read>\n<parameter=items>\na\n b\n</parameter>\n<parameter=n>\n2\n</parameter>\n\
        <parameter=f>\n1.0\n</parameter>\n<parameter=o>\n{\"k\": [true, null, \"ü\"]}\n</parameter>\n</function>\n\
            </tool_call>\n\
        <tool_call>\n<function=stop>\n</function>\n</tool_call><|im_end|>\n\
        <|im_start|>user\n<tool_response>\nfirst\n</tool_response>\n\
        <tool_response>\nsecond\n</tool_response><|im_end|>\n\
        <|im_start|>assistant\n<think>\n\n</think>\n\n<tool_call>\n<function=one>\n<parameter=b>\nx\n</parameter>\n\
        <parameter=a>\n1\n</parameter>\n</function>\n</tool_call><|im_end|>\n\
        <|im_start|>user\n<tool_response>\nthird\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n";
    assert_eq!(render(&c), expected);
    // Every tag in it is the template's.
    assert_eq!(TEMPLATE.render(&c).unwrap().ids(&EMBER).unwrap(), EMBER.encode_raw(expected).unwrap());
}

#[test]
fn reasoning_is_taken_from_its_field_or_split_from_the_content() {
    let field = Message { reasoning_content: Some("\nwhy\n".into()), ..say(Role::Assistant, "because") };
    let inline = say(Role::Assistant, "<think>\nwhy\n</think>\n\nbecause");
    let bare = say(Role::Assistant, "why</think> lost </think>because");
    let blank = Message { reasoning_content: Some(" ".into()), ..inline.clone() };
    for assistant in [field, inline, bare, blank] {
        let c = medium(vec![say(Role::User, "a"), assistant, say(Role::User, "b")]);
        assert_eq!(
            render(&c),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nwhy\n</think>\n\nbecause<|im_end|>\n\
                <|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n<think>\n"
        );
    }
}

#[test]
fn a_longer_conversation_begins_with_the_shorter_ones_prompt() {
    let first = medium(vec![say(Role::User, "a")]);
    let answer = Message { reasoning_content: Some("why".into()), ..say(Role::Assistant, "because") };
    let second = medium(vec![say(Role::User, "a"), answer, say(Role::User, "b")]);
    assert!(render(&second).starts_with(&format!("{}why\n</think>\n\nbecause<|im_end|>\n", render(&first))));
}

#[test]
fn arguments_that_are_no_object_are_named() {
    for arguments in [json!("[1]"), json!("{\"a\": "), json!("7"), json!(""), json!(null), json!([1])] {
        let turn = Message { tool_calls: vec![call("add", arguments)], ..say(Role::Assistant, "") };
        let sentence = refusal(&chat(vec![say(Role::User, "x"), turn]));
        assert!(
            sentence.contains("message 1") && sentence.contains("'add'") && sentence.contains("JSON"),
            "{sentence}"
        );
    }
}

#[test]
fn conversations_that_the_released_template_refuses_are_refused() {
    let nobody = "No user query found in messages.";
    assert_eq!(refusal(&chat(vec![])), nobody);
    assert_eq!(refusal(&chat(vec![say(Role::System, "x")])), nobody);
    assert_eq!(refusal(&chat(vec![say(Role::User, " <tool_response>\nx\n</tool_response> ")])), nobody);
    assert!(
        refusal(&chat(vec![say(Role::User, "x"), say(Role::System, "y")])).contains("message 1 is a system message")
    );
}

/// User text at every place a conversation has.
fn everywhere(text: &str) -> Conversation {
    let turn = Message {
        reasoning_content: Some(text.into()),
        tool_calls: vec![call(text, json!({text: text, "o": {text: [text]}}))],
        tool_call_id: Some(text.into()),
        ..say(Role::Assistant, text)
    };
    Conversation {
        tools: vec![json!({"type": "function", "function": {"name": text, text: text}})],
        ..chat(vec![say(Role::System, text), say(Role::User, &format!("q{text}")), turn, say(Role::Tool, text)])
    }
}

fn added(ids: &[u32]) -> Vec<u32> {
    ids.iter().copied().filter(|&id| id <= 8).collect()
}

#[test]
fn user_text_that_looks_like_any_added_token_stays_text() {
    let expected = added(&TEMPLATE.render(&everywhere("x")).unwrap().ids(&EMBER).unwrap());
    assert!(expected.len() > 10);
    for token in EMBER.added_tokens() {
        for text in [token.content.clone(), format!("x><{0}{0}", &token.content[1..]), format!("{}\n", token.content)] {
            let rendered = TEMPLATE.render(&everywhere(&text)).unwrap();
            assert_eq!(added(&rendered.ids(&EMBER).unwrap()), expected, "{text}");
            assert!(rendered.text().contains(&format!("user\nq{}<|im_end|>", text.trim())));
        }
    }
}

proptest! {
    #[test]
    fn no_user_text_adds_a_special_token_and_all_of_it_arrives(
        text in "(<\\|im_(start|end)\\|>|</?think>|</?tool_call>|[<>|/a-z\u{fdd0}-\u{fdd3}]){1,12}"
    ) {
        let c = everywhere(&text);
        let rendered = TEMPLATE.render(&c).unwrap();
        let ids = rendered.ids(&EMBER).unwrap();
        let expected = added(&TEMPLATE.render(&everywhere("x")).unwrap().ids(&EMBER).unwrap());
        prop_assert_eq!(added(&ids), expected);
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| EMBER.bytes(id)).copied().collect();
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), rendered.text());
    }
}

/// Written for this test in the manner of published templates: macros, white-space control, `is` tests, slices.
const PUBLISHED_STYLE: &str = r"
{%- macro body(content) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}{{- item.text }}{%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('Unexpected content.') }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}{{- raise_exception('No messages provided.') }}{%- endif %}
{%- set ns = namespace(last=messages|length - 1, open=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == 'user' %}
        {%- set ns.open = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = body(message.content)|trim %}
    {%- if message.role == 'assistant' and message.tool_calls and message.tool_calls is iterable %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '[' + tool_call.name }}
            {%- if tool_call.arguments is mapping %}
                {%- for name, value in tool_call.arguments|items %}
                    {{- ' ' + name + '=' }}
                    {%- set nested = value is mapping or (value is sequence and value is not string) %}
                    {{- value|tojson|safe if nested else value|string }}
                {%- endfor %}
            {%- endif %}
            {{- ']' }}
        {%- endfor %}
    {%- elif loop.index0 >= ns.last %}
        {{- '<|im_start|>' + message.role + '!' + content + eos_token }}
    {%- elif loop.previtem and loop.previtem.role == message.role %}
        {{- '+' + content }}
    {%- else %}
        {{- message.role[:1] + content }}
    {%- endif %}
{%- endfor %}
";

#[test]
fn templates_in_the_published_style_run() {
    let template = Template::new(PUBLISHED_STYLE, &EMBER).unwrap();
    let turn = Message {
        tool_calls: vec![call("f", json!({"a": [1, "<b>"], "values": true, "s": "t"}))],
        ..say(Role::Assistant, "")
    };
    let c = chat(vec![say(Role::User, "a"), say(Role::User, "b"), turn, say(Role::User, " c ")]);
    let text = template.render(&c).unwrap().text();
    assert_eq!(text, "ua+b[f a=[1, \"<b>\"] values=True s=t]<|im_start|>user!c<|im_end|>");
}

#[test]
fn a_template_is_found_where_models_keep_it() {
    let list = br#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
    assert_eq!(Template::source(Some("j"), Some(list)).unwrap(), "j");
    assert_eq!(Template::source(None, Some(list)).unwrap(), "d");
    assert_eq!(Template::source(None, Some(CONFIG)).unwrap().trim_end(), SOURCE.trim_end());
    for config in [None, Some(&b"{}"[..]), Some(br#"{"chat_template": [{"name": "tool_use", "template": "t"}]}"#)] {
        assert!(matches!(Template::source(None, config), Err(Error::Model(m)) if m.contains("--raw")));
    }
    assert!(matches!(Template::source(None, Some(b"{")), Err(Error::Model(m)) if m.contains("tokenizer_config.json")));
}

#[test]
fn a_broken_template_is_the_models_fault_and_says_where() {
    assert!(matches!(Template::new("{% if %}", &EMBER), Err(Error::Model(m)) if m.contains("chat_template:1")));
    let failing = Template::new("\n{{ nothing.at.all }}", &EMBER).unwrap();
    let result = failing.render(&chat(vec![say(Role::User, "x")]));
    assert!(matches!(result, Err(Error::Model(m)) if m.contains("chat_template:2")));
}
