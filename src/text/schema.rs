//! The types of a tool's parameters, and a written value turned into one of them (spec 6.3).
//!
//! Owns: which JSON types a tool's schema allows for a parameter, and the conversion of the model's text.
//! Always true: text that is no value of an allowed type stays a string, so nothing the model wrote is lost.
//! Not here: finding the values in the answer (`parse`), enforcing a schema while sampling (`engine`).

use serde_json::Value;

/// JSON types that a parameter may have. None of them known means a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Types {
    string: bool,
    number: bool,
    integer: bool,
    boolean: bool,
    null: bool,
    object: bool,
    array: bool,
}

/// Schemas refer to each other; a circle ends here.
const DEEPEST: usize = 16;

impl Types {
    /// Of `parameter` of `function` among `tools`, which are wrapped as OpenAI does or bare.
    pub fn of(tools: &[Value], function: &str, parameter: &str) -> Types {
        let bare = tools.iter().map(|tool| tool.get("function").unwrap_or(tool));
        let mut types = Types::default();
        if let Some(root) = bare.into_iter().find(|f| f["name"] == function).and_then(|f| f.get("parameters")) {
            types.collect(root, &root["properties"][parameter], DEEPEST);
        }
        types
    }

    fn collect(&mut self, root: &Value, schema: &Value, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match &schema["type"] {
            Value::String(name) => self.add(name),
            Value::Array(names) => names.iter().filter_map(Value::as_str).for_each(|name| self.add(name)),
            _ => {}
        }
        let target = schema["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?));
        let branches = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
        for schema in target.into_iter().chain(branches) {
            self.collect(root, schema, depth);
        }
        if schema.get("type").is_none() {
            let listed = schema["enum"].as_array().into_iter().flatten();
            for value in listed.chain(schema.get("const")) {
                self.add(match value {
                    Value::Null => "null",
                    Value::Bool(_) => "boolean",
                    Value::Number(_) => "number",
                    Value::String(_) => "string",
                    Value::Array(_) => "array",
                    Value::Object(_) => "object",
                });
            }
        }
    }

    fn add(&mut self, name: &str) {
        match name {
            "string" => self.string = true,
            "number" => self.number = true,
            "integer" => self.integer = true,
            "boolean" => self.boolean = true,
            "null" => self.null = true,
            "object" => self.object = true,
            "array" => self.array = true,
            _ => {}
        }
    }

    /// Whether a value that begins with `text` is a string however it goes on.
    pub fn is_string(&self, text: &str) -> bool {
        let other = self.number || self.integer || self.boolean || self.object || self.array;
        !other && (!self.null || !"null".starts_with(text.trim()))
    }

    /// The value that `text` writes: of an allowed type if it is one, otherwise a string.
    pub fn convert(&self, text: &str) -> Value {
        let word = text.trim();
        let written = match word {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" if !self.string => Some(Value::Null),
            _ => serde_json::from_str(word).ok(),
        };
        let fits = |value: &Value| match value {
            Value::Null => self.null,
            Value::Bool(_) => self.boolean,
            Value::Number(number) => self.number || (self.integer && !number.is_f64()),
            Value::String(_) => false,
            Value::Array(_) => self.array,
            Value::Object(_) => self.object,
        };
        match written {
            Some(value) if fits(&value) => value,
            Some(Value::Number(number)) if self.integer => whole(number.as_f64()).unwrap_or_else(|| text.into()),
            _ => text.into(),
        }
    }
}

/// A float without a fraction as the integer it is (JSON Schema counts 3.0 as one), where floats are exact.
fn whole(value: Option<f64>) -> Option<Value> {
    const EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;
    let value = value.filter(|v| v.fract() == 0.0 && v.abs() <= EXACT)?;
    Some(Value::from(value as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn convert(schema: Value, text: &str) -> Value {
        let parameters =
            json!({"properties": {"p": schema}, "$defs": {"o": {"type": "object"}, "c": {"$ref": "#/$defs/c"}}});
        let wrapped = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
        let bare = json!({"name": "f", "parameters": parameters});
        let value = Types::of(&[wrapped], "f", "p").convert(text);
        assert_eq!(Types::of(&[bare], "f", "p").convert(text), value);
        value
    }

    #[test]
    fn values_take_the_type_that_their_schema_allows() {
        for (schema, text, value) in [
            (json!({"type": "integer"}), " 42", json!(42)),
            (json!({"type": "integer"}), "18446744073709551615", json!(u64::MAX)),
            (json!({"type": "integer"}), "3.0", json!(3)),
            (json!({"type": "integer"}), "3.5", json!("3.5")),
            (json!({"type": "integer"}), "many", json!("many")),
            (json!({"type": "number"}), "42", json!(42)),
            (json!({"type": "number"}), "-1.5e3", json!(-1500.0)),
            (json!({"type": "number"}), "true", json!("true")),
            (json!({"type": "boolean"}), "true", json!(true)),
            (json!({"type": "boolean"}), "False", json!(false)),
            (json!({"type": "boolean"}), "yes", json!("yes")),
            (json!({"type": "null"}), "None", json!(null)),
            (json!({"type": "object"}), "{\"a\": [1]}", json!({"a": [1]})),
            (json!({"type": "object"}), "{'a': 1}", json!("{'a': 1}")),
            (json!({"type": "array"}), "\n[1, \"x\"]\n", json!([1, "x"])),
            (json!({"type": "array"}), "{}", json!("{}")),
            (json!({"type": "string"}), "42", json!("42")),
            (json!({"type": "string"}), " null ", json!(" null ")),
            (json!({"type": ["string", "null"]}), "null", json!(null)),
            (json!({"type": ["string", "null"]}), "None", json!("None")),
            (json!({"type": ["string", "integer"]}), "7", json!(7)),
            (json!({"anyOf": [{"type": "string"}, {"type": "array"}]}), "[]", json!([])),
            (json!({"$ref": "#/$defs/o"}), "{}", json!({})),
            (json!({"$ref": "#/$defs/c"}), "{}", json!("{}")),
            (json!({"enum": [1, 2]}), "2", json!(2)),
            (json!({"enum": ["1"]}), "1", json!("1")),
            (json!({}), "5", json!("5")),
            (json!(true), "5", json!("5")),
        ] {
            assert_eq!(convert(schema.clone(), text), value, "{schema} {text}");
        }
        assert_eq!(Types::of(&[json!({"name": "g"}), json!(3)], "f", "p").convert("1"), json!("1"));
    }

    #[test]
    fn a_string_is_certain_as_soon_as_no_other_type_is_possible() {
        let of = |schema| Types::of(&[json!({"name": "f", "parameters": {"properties": {"p": schema}}})], "f", "p");
        assert!(of(json!({"type": "string"})).is_string(""));
        assert!(!of(json!({"type": "integer"})).is_string("abc"));
        let optional = of(json!({"type": ["string", "null"]}));
        assert!(!optional.is_string("") && !optional.is_string(" nul") && optional.is_string("nub"));
        assert!(!optional.is_string("null") && optional.is_string("nullable"));
    }
}
