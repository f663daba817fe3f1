//! What a client is told when something is wrong: status, shape and field.
//!
//! Owns: the statuses of the crate's errors, and the two shapes (OpenAI's; Anthropic's on its own routes).
//! Always true: every error body is one JSON object; a 400 names the field where one field is to blame.
//! Not here: who found the mistake (`guard`, `body`, `wire`, the engine).

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::error::Error;

/// Seconds after which a client that was turned away may ask again.
const RETRY_AFTER: u64 = 5;

/// Whose error shape a route answers in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`.
    Anthropic,
}

impl Shape {
    /// The shape of a path's family.
    pub fn of(path: &str) -> Shape {
        if path.starts_with("/v1/messages") { Shape::Anthropic } else { Shape::OpenAi }
    }
}

/// An answer that is not what was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// A sentence that names the thing and says what to do.
    pub message: String,
    /// The field at fault, as a path (`messages[0].content`).
    pub param: Option<String>,
    /// A word that programs can test.
    pub code: Option<&'static str>,
    /// More members of the error object.
    pub extra: Vec<(&'static str, Value)>,
    /// With 503: seconds after which to ask again.
    pub retry: Option<u64>,
}

impl ApiError {
    /// An error of any status.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: Some(code), extra: Vec::new(), retry: None }
    }

    /// 400 for one field.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        let param = Some(param.into());
        ApiError { param, ..ApiError::new(StatusCode::BAD_REQUEST, "invalid_value", message) }
    }

    /// 400 for a field whose meaning is not supported.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        let param = Some(param.into());
        ApiError { param, ..ApiError::new(StatusCode::BAD_REQUEST, "unsupported_value", message) }
    }

    /// The same error, blamed on `param` unless a field is named already.
    pub fn blame(mut self, param: &str) -> ApiError {
        if self.status == StatusCode::BAD_REQUEST {
            self.param.get_or_insert_with(|| param.to_string());
        }
        self
    }

    /// OpenAI's word for the kind of error.
    fn openai_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            400..=499 => "invalid_request_error",
            501 => "not_supported_error",
            _ => "server_error",
        }
    }

    /// Anthropic's word for the kind of error.
    fn anthropic_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            400..=499 => "invalid_request_error",
            503 => "overloaded_error",
            _ => "api_error",
        }
    }

    /// The body in a shape.
    pub fn body(&self, shape: Shape) -> Value {
        let mut inner = match shape {
            Shape::OpenAi => json!({
                "message": self.message, "type": self.openai_type(), "param": self.param, "code": self.code,
            }),
            Shape::Anthropic => {
                let message = match &self.param {
                    Some(param) => format!("{param}: {}", self.message),
                    None => self.message.clone(),
                };
                json!({"type": self.anthropic_type(), "message": message})
            }
        };
        if let Value::Object(inner) = &mut inner {
            inner.extend(self.extra.iter().map(|(name, value)| (name.to_string(), value.clone())));
        }
        match shape {
            Shape::OpenAi => json!({"error": inner}),
            Shape::Anthropic => json!({"type": "error", "error": inner}),
        }
    }

    /// The whole answer in a shape.
    pub fn response(&self, shape: Shape) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body(shape).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, self.retry.unwrap_or(RETRY_AFTER).into());
            }
            _ => {}
        }
        response
    }
}

/// Status and word of one of the crate's errors.
fn kind(error: &Error) -> (StatusCode, &'static str) {
    match error {
        Error::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid_value"),
        Error::ContextLength { .. } => (StatusCode::BAD_REQUEST, "context_length_exceeded"),
        Error::InsufficientMemory(_) => (StatusCode::INSUFFICIENT_STORAGE, "insufficient_memory"),
        Error::Busy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "queue_full"),
        Error::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, "shutting_down"),
        Error::Model(_) => (StatusCode::INTERNAL_SERVER_ERROR, "model_error"),
        Error::Io { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "io_error"),
        Error::Device(_) => (StatusCode::INTERNAL_SERVER_ERROR, "device_error"),
        Error::Numeric(_) => (StatusCode::INTERNAL_SERVER_ERROR, "numeric_error"),
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> ApiError {
        let (status, code) = kind(&error);
        let mut told = ApiError::new(status, code, error.to_string());
        match error {
            Error::ContextLength { prompt, context } => {
                told.extra.push(("n_prompt_tokens", prompt.into()));
                told.extra.push(("n_ctx", context.into()));
            }
            Error::Busy { retry, .. } => told.retry = Some(retry.as_secs().max(1)),
            Error::Cancelled => told.message = "the server is shutting down: ask again in a moment".into(),
            _ => {}
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_is_too_long_says_by_how_much_in_both_shapes() {
        let error = ApiError::from(Error::ContextLength { prompt: 9, context: 8 }).blame("messages");
        let openai = error.body(Shape::OpenAi);
        assert_eq!(openai["error"]["code"], "context_length_exceeded");
        assert_eq!((&openai["error"]["param"], &openai["error"]["n_ctx"]), (&json!("messages"), &json!(8)));
        let anthropic = error.body(Shape::Anthropic);
        assert_eq!((&anthropic["type"], &anthropic["error"]["n_prompt_tokens"]), (&json!("error"), &json!(9)));
        assert_eq!(anthropic["error"]["type"], "invalid_request_error");
    }

    #[test]
    fn memory_is_507_and_waiting_is_503_with_a_time() {
        let refused = ApiError::from(Error::InsufficientMemory("no".into())).response(Shape::OpenAi);
        assert_eq!(refused.status().as_u16(), 507);
        let busy = ApiError::from(Error::Cancelled).response(Shape::OpenAi);
        assert_eq!((busy.status().as_u16(), busy.headers().contains_key(header::RETRY_AFTER)), (503, true));
    }

    #[test]
    fn only_a_400_is_blamed_on_a_field_and_the_first_blame_stays() {
        assert_eq!(ApiError::field("a", "x").blame("b").param.as_deref(), Some("a"));
        assert_eq!(ApiError::from(Error::Numeric("NaN".into())).blame("b").param, None);
    }
}
