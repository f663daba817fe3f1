//! Request bodies: read within limits, then into a type that names the field at fault.
//!
//! Owns: the size and time limits of a body, its content type, the path of a field that has a wrong type.
//! Always true: an unknown field is ignored and logged; nothing is read of a body that is announced as too large.
//! Not here: what the fields mean (`wire`).

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ApiError;

/// How long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(30);

/// A body that is a JSON object.
///
/// Errors: 415 for another content type, 413 above `limit` bytes, 408 for a body that does not arrive, 400 for what is
/// not a JSON object.
pub async fn json(headers: &HeaderMap, body: Body, limit: usize) -> Result<Value, ApiError> {
    check_type(headers)?;
    let bytes = match tokio::time::timeout(PATIENCE, read(headers, body, limit)).await {
        Ok(bytes) => bytes?,
        Err(_) => {
            let message = format!("the body did not arrive within {} seconds: send it at once", PATIENCE.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message));
        }
    };
    object(&bytes)
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    // A page of another site can send text/plain without asking first, but not this type.
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("the content type is '{given}': send application/json");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}

async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let too_large = || {
        let message = format!("the body is larger than {limit} bytes: send less or raise --body-limit");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(announced.unwrap_or_default());
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, "body_cut_short", format!("the body ended too early: {error}"))
        })?;
        if bytes.len() + chunk.len() > limit {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn object(bytes: &[u8]) -> Result<Value, ApiError> {
    let bad = |message| ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message);
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(mut object)) => {
            object.values_mut().for_each(whole);
            Ok(object.into())
        }
        Ok(_) => Err(bad("the body is not a JSON object: send {…}".into())),
        Err(error) => Err(bad(format!("the body is not JSON: {error}"))),
    }
}

/// 3.0 is the number 3, as JSON Schema has it, though only some languages write it so. Objects stay as they are: tools and
/// histories are shown to the model as they were sent.
fn whole(value: &mut Value) {
    /// Up to here floats are exact.
    const EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;
    match value {
        Value::Array(list) => list.iter_mut().for_each(whole),
        Value::Number(number) => {
            let float = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() <= EXACT);
            if let Some(float) = float {
                *value = (float as i64).into();
            }
        }
        _ => {}
    }
}

/// The fields of one object, read into one type or several that share them.
pub struct Fields<'v> {
    object: &'v Value,
    /// What every type so far has ignored.
    unknown: Option<BTreeSet<String>>,
}

impl<'v> Fields<'v> {
    /// Over an object.
    pub fn of(object: &'v Value) -> Fields<'v> {
        Fields { object, unknown: None }
    }

    /// The fields that `T` knows.
    ///
    /// Errors: 400 naming the field whose value has a wrong type, or that is missing.
    pub fn read<T: Deserialize<'v>>(&mut self) -> Result<T, ApiError> {
        let mut ignored = BTreeSet::new();
        let mut note = |path: serde_ignored::Path<'_>| {
            ignored.insert(path.to_string());
        };
        let mut track = serde_path_to_error::Track::new();
        let fields = serde_path_to_error::Deserializer::new(self.object, &mut track);
        let read = serde_ignored::deserialize(fields, &mut note);
        let value = read.map_err(|error: serde_json::Error| at_fault(&track.path().to_string(), error.to_string()))?;
        self.unknown = Some(match self.unknown.take() {
            None => ignored,
            Some(before) => before.intersection(&ignored).cloned().collect(),
        });
        Ok(value)
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        for path in self.unknown.iter().flatten() {
            // The name is the client's text: quoted, so that it cannot forge a line.
            tracing::info!("the field {path:?} is not known and ignored");
        }
    }
}

/// The error of a field; a missing one stands at its parent, and serde names it in the sentence.
fn at_fault(path: &str, message: String) -> ApiError {
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    let parent = path.trim_matches('.');
    let param = match (parent, missing) {
        ("", name) => name.map(str::to_string),
        (parent, Some(name)) => Some(format!("{parent}.{name}")),
        (path, None) => Some(path.to_string()),
    };
    ApiError { param, ..ApiError::new(StatusCode::BAD_REQUEST, "invalid_type", message) }
}

/// A JSON answer.
pub fn answer(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(text))
            .unwrap_or_else(|error| failed(&error)),
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> Response {
    let message = format!("the answer cannot be written: {error}");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "answer_failed", message).response(super::error::Shape::OpenAi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Outer {
        list: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        text: String,
    }

    #[derive(Debug, Deserialize)]
    struct Beside {
        #[serde(rename = "other")]
        _other: Option<u32>,
    }

    #[test]
    fn the_field_at_fault_is_named_with_its_path() {
        for (body, param) in [
            (r#"{"list": [{"text": "a"}, {"text": 3}]}"#, "list[1].text"),
            (r#"{"list": [{"text": "a"}, {}]}"#, "list[1].text"),
            (r#"{"list": 3}"#, "list"),
            (r#"{}"#, "list"),
        ] {
            let body = object(body.as_bytes()).unwrap();
            let error = Fields::of(&body).read::<Outer>().unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}: {error:?}");
        }
        for body in ["", "[1]", "3", "{", "{\"list\": []} x"] {
            let error = object(body.as_bytes()).unwrap_err();
            assert_eq!((error.code, error.param), (Some("invalid_json"), None), "{body}");
        }
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point_but_not_where_the_model_reads_it() {
        let read = |text: &str| object(text.as_bytes()).unwrap().to_string();
        assert_eq!(read(r#"{"n":2.0,"prompt":[[1e2,-3.0]],"t":0.5}"#), r#"{"n":2,"prompt":[[100,-3]],"t":0.5}"#);
        for kept in [r#"{"tools":[{"minimum":1.0}]}"#, r#"{"seed":1e300}"#, r#"{"seed":9223372036854775807}"#] {
            assert_eq!(
                serde_json::from_str::<Value>(&read(kept)).unwrap(),
                serde_json::from_str::<Value>(kept).unwrap()
            );
        }
    }

    #[test]
    fn only_what_no_type_knows_is_unknown() {
        let body = object(br#"{"list": [{"text": "a", "new": 1}], "other": 2, "third": 3}"#).unwrap();
        let mut fields = Fields::of(&body);
        assert_eq!(fields.read::<Outer>().unwrap().list[0].text, "a");
        fields.read::<Beside>().unwrap();
        let unknown: Vec<&str> = fields.unknown.iter().flatten().map(String::as_str).collect();
        assert_eq!(unknown, ["third"]);
    }
}
