//! Flags of thinking, for whoever answers on a terminal.
//!
//! Owns: their names, and what they say to a chat template.
//! Not here: telling thinking and answer apart (`text::parse`), printing (`export`, `chat`).

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};

/// Whether and how long to think.
#[derive(Debug, Clone, Args)]
pub struct ThinkingArgs {
    /// Think before answering [default: yes]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", hide_possible_values = true, overrides_with = "no_think",
        value_parser = BoolishValueParser::new())]
    pub think: Option<bool>,
    /// Answer at once
    #[arg(long, overrides_with = "think")]
    pub no_think: bool,
    /// How long to think [default: xhigh]
    #[arg(long, value_enum, value_name = "EFFORT")]
    pub reasoning_effort: Option<Effort>,
    /// Print the thinking on standard error also where that is not a terminal
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value = "false", hide_default_value = true,
        hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub show_thinking: bool,
}

impl ThinkingArgs {
    /// Whether to think, if the user said.
    pub fn enabled(&self) -> Option<bool> {
        if self.no_think { Some(false) } else { self.think }
    }

    /// The chat template's word for how long, if the user said.
    pub fn effort(&self) -> Option<String> {
        self.reasoning_effort.map(|effort| effort.name().to_string())
    }
}

/// How long to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Effort {
    /// Briefly.
    Low,
    /// The model's own measure.
    Medium,
    /// Carefully.
    Xhigh,
}

impl Effort {
    /// The chat template's word.
    fn name(self) -> &'static str {
        match self {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::Xhigh => "xhigh",
        }
    }
}
