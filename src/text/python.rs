//! What chat templates expect of Python, for minijinja.
//!
//! Owns: `tojson` as `json.dumps` writes it, `str()` and `repr()` of values, string methods, and the functions that
//! transformers adds (`raise_exception`, `strftime_now`).
//! Always true: no HTML escaping; text passes through unchanged except where Python would change it.
//! Not here: the conversation's values (`template`).

use std::fmt::{self, Write};

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// A sentence that a template raised on purpose; found as the source of a rendering's error.
#[derive(Debug)]
pub struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// An environment as transformers configures Jinja2.
pub fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(method);
    env.set_formatter(|out, _, value| out.write_str(&str(value)).map_err(|e| failed(e.to_string())));
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: &Value| str(value));
    env.add_filter("trim", |text: &str, chars: Option<&str>| strip(text, chars, true, true).to_owned());
    // Jinja2 asks for a length and items by key: strings and mappings have both.
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::String | ValueKind::Map)
    });
    env.add_function("raise_exception", |sentence: &Value| -> Result<Value, Error> {
        Err(failed("the template raised an exception".into()).with_source(Raised(str(sentence))))
    });
    env.add_function("strftime_now", |format: &str| {
        jiff::fmt::strtime::format(format, &jiff::Zoned::now())
            .map_err(|e| failed(format!("strftime_now('{format}'): {e}")))
    });
    env
}

fn failed(problem: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// Methods where Python and the library differ: what counts as white space.
fn method(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (Some(text), "strip" | "lstrip" | "rstrip") = (value.as_str(), method) else {
        return pycompat::unknown_method_callback(state, value, method, args);
    };
    let (chars,): (Option<&str>,) = minijinja::value::from_args(args)?;
    Ok(strip(text, chars, method != "rstrip", method != "lstrip").into())
}

/// `str.strip`: `chars`, or Python's white space (Unicode's and the four separators U+001C..U+001F).
pub fn strip<'t>(text: &'t str, chars: Option<&str>, left: bool, right: bool) -> &'t str {
    let goes = |c: char| match chars {
        Some(chars) => chars.contains(c),
        None => c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c),
    };
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right { text.trim_end_matches(goes) } else { text }
}

/// `str(value)`; an undefined value is empty.
fn str(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

/// `repr(value)`.
fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "None".into(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.into(),
        ValueKind::Number => number(value),
        ValueKind::String => quote(value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            format!("[{}]", items(value).iter().map(repr).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Map => {
            let pair = |key: &Value| format!("{}: {}", repr(key), repr(&value.get_item(key).unwrap_or_default()));
            format!("{{{}}}", items(value).iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}

/// Elements of a sequence, keys of a mapping.
fn items(value: &Value) -> Vec<Value> {
    value.try_iter().map(Iterator::collect).unwrap_or_default()
}

/// A string as Python's source would write it.
fn quote(text: &str) -> String {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(mark);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == mark => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(mark);
    out
}

/// A number as Python prints it.
fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => float_repr(float),
        _ => value.to_string(),
    }
}

/// `repr(float)`: the shortest digits that read back the same, with an exponent outside 1e-4..1e16.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        let fixed = value.to_string();
        return if fixed.contains('.') { fixed } else { fixed + ".0" };
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// How `json.dumps` was asked to write.
struct Json {
    indent: Option<String>,
    between: String,
    colon: String,
    ascii: bool,
    sorted: bool,
}

/// The filter as transformers defines it: `tojson(value, ensure_ascii=False, indent=None, separators=None,
/// sort_keys=False)`.
fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let option = |place: usize, name: &str| -> Result<Value, Error> {
        Ok(match positional.get(place) {
            Some(value) => value.clone(),
            None => named.get::<Option<Value>>(name)?.unwrap_or_default(),
        })
    };
    let ascii = option(0, "ensure_ascii")?.is_true();
    let indent = option(1, "indent")?;
    let indent = match indent.as_str() {
        Some(text) => Some(text.to_owned()),
        None if indent.is_none() || indent.is_undefined() => None,
        None => Some(" ".repeat(usize::try_from(indent)?)),
    };
    let separators = option(2, "separators")?;
    let (between, colon) = if separators.is_none() || separators.is_undefined() {
        (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned())
    } else {
        (str(&separators.get_item(&0.into())?), str(&separators.get_item(&1.into())?))
    };
    let sorted = option(3, "sort_keys")?.is_true();
    named.assert_all_used()?;
    let mut out = String::new();
    Json { indent, between, colon, ascii, sorted }.write(value, 0, &mut out)?;
    Ok(out)
}

impl Json {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&match number(value).as_str() {
                "nan" => "NaN".to_owned(),
                "inf" => "Infinity".to_owned(),
                "-inf" => "-Infinity".to_owned(),
                plain => plain.to_owned(),
            }),
            ValueKind::String => self.text(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                self.list(('[', ']'), &items(value), depth, out, |item, out| self.write(item, depth + 1, out))?;
            }
            ValueKind::Map => {
                let mut keys = items(value);
                if self.sorted {
                    keys.sort();
                }
                self.list(('{', '}'), &keys, depth, out, |key, out| {
                    self.key(key, out)?;
                    out.push_str(&self.colon);
                    self.write(&value.get_item(key)?, depth + 1, out)
                })?;
            }
            kind => return Err(failed(format!("tojson: {kind} cannot be written as JSON"))),
        }
        Ok(())
    }

    fn list(
        &self,
        (open, close): (char, char),
        items: &[Value],
        depth: usize,
        out: &mut String,
        mut write: impl FnMut(&Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |depth: usize, out: &mut String| {
            if let Some(indent) = self.indent.as_ref().filter(|_| !items.is_empty()) {
                out.push('\n');
                out.push_str(&indent.repeat(depth));
            }
        };
        out.push(open);
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.push_str(&self.between);
            }
            line(depth + 1, out);
            write(item, out)?;
        }
        line(depth, out);
        out.push(close);
        Ok(())
    }

    /// JSON's keys are texts: Python turns numbers, booleans and None into them.
    fn key(&self, key: &Value, out: &mut String) -> Result<(), Error> {
        if let Some(text) = key.as_str() {
            self.text(text, out);
            return Ok(());
        }
        out.push('"');
        self.write(key, 0, out)?;
        out.push('"');
        Ok(())
    }

    fn text(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                // Stand-ins of `escape` are ASCII in truth, and must survive to be shown again.
                '\u{fdd0}'..='\u{fdef}' => out.push(c),
                c if c < ' ' || (self.ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;

    fn render(source: &str, x: serde_json::Value) -> String {
        environment().render_str(source, context! { x => Value::from_serialize(x) }).unwrap()
    }

    #[test]
    fn floats_print_as_python_prints_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001234, "1.234e-05"),
            (-123456.789, "-123456.789"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float_repr(value), text);
        }
    }

    // The expected texts are those of CPython 3: json.dumps(x, ensure_ascii=False, ...).
    #[test]
    fn tojson_writes_what_json_dumps_writes() {
        let odd = "\u{1}\u{7f}\n\u{8}é\u{1f600}";
        let x = serde_json::json!({"b": [1, -2.5, 1e22, true, null], "a": {"<'&\">": odd}, "e": [], "m": {}});
        let plain = "{\"b\": [1, -2.5, 1e+22, true, null], \"a\": {\"<'&\\\">\": \
            \"\\u0001\u{7f}\\n\\b\u{e9}\u{1f600}\"}, \
                     \"e\": [], \"m\": {}}";
        assert_eq!(render("{{ x | tojson }}", x.clone()), plain);
        assert_eq!(render("{{ x | tojson(ensure_ascii=false) }}", x.clone()), plain);
        let ascii =
            plain.replace('\u{e9}', "\\u00e9").replace('\u{1f600}', "\\ud83d\\ude00").replace('\u{7f}', "\\u007f");
        assert_eq!(render("{{ x | tojson(ensure_ascii=true) }}", x), ascii);
        let small = serde_json::json!({"b": [1, {}], "a": []});
        assert_eq!(
            render("{{ x | tojson(indent=2) }}", small.clone()),
            "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}"
        );
        assert_eq!(render("{{ x | tojson(separators=(',', ':'), sort_keys=true) }}", small), "{\"a\":[],\"b\":[1,{}]}");
    }

    #[test]
    fn values_print_as_python_prints_them() {
        let x = serde_json::json!({"l": [1, "a'b", "\n\""], "n": null, "t": true, "f": 1e20});
        assert_eq!(
            render("{{ x }}|{{ x.n }}|{{ x.t }}|{{ x.f }}|{{ x.nothing }}|{{ x.l | string }}", x),
            "{'l': [1, \"a'b\", '\\n\"'], 'n': None, 't': True, 'f': 1e+20}|None|True|1e+20||[1, \"a'b\", '\\n\"']"
        );
    }

    #[test]
    fn string_and_mapping_methods_work_as_in_python() {
        for (source, text) in [
            (
                "{{ '\u{1f} a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ '\u{1d}a\n' | trim }}",
                "a|a | a|a",
            ),
            ("{{ 'xxaxy'.strip('xy') }}|{{ 'xxax'.lstrip('x') }}|{{ 'xxax'.rstrip('x') }}", "a|ax|xxa"),
            (
                "{{ 'a,b,c'.split(',')[-1] }}|{{ 'a,b,c'.split(',', 1)[1] }}|{{ ' a  b '.split() | join('-') }}",
                "c|b,c|a-b",
            ),
            (
                "{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'aXa'.replace('a', 'b') }}",
                "True|True|bXb",
            ),
            ("{{ 'aB'.upper() }}|{{ 'aB'.lower() }}|{{ 'a bc'.title() }}", "AB|ab|A Bc"),
            ("{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}", "items=1;b=2;"),
            ("{{ x.keys() | list }}|{{ x.get('b') }}|{{ x.get('c') }}|{{ x.get('c', 5) }}", "['items', 'b']|2|None|5"),
            ("{{ 'a' is sequence }}|{{ x is mapping }}|{{ [1, 2][::-1] }}|{{ 'b' in x }}", "True|True|[2, 1]|True"),
            ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"),
            (
                "{%- set n = namespace(i=0) %}\n{% for i in [1, 2] %}\n {% set n.i = n.i + i %}\n{% endfor %}\n\
                    {{ n.i }}\n",
                "3",
            ),
        ] {
            assert_eq!(render(source, serde_json::json!({"items": 1, "b": 2})), text, "{source}");
        }
        let year: i32 = render("{{ strftime_now('%Y') }}", serde_json::Value::Null).parse().unwrap();
        assert!(year > 2000);
    }
}
