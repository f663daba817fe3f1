//! Notices a device that does not come back from a step.
//!
//! Owns: when a step has taken too long.
//! Always true: an engine between two steps, or without work, is never stuck.
//! Not here: what follows (`listen`), how long steps take (the engine's counters).

use std::time::Duration;

use super::App;

/// The shortest and the longest time between two looks.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Ends when a step has taken longer than the user allows: with the sentence to say.
pub async fn watch(app: &App) -> String {
    let limit = app.options.watchdog;
    if limit.is_zero() {
        return std::future::pending().await;
    }
    let pause = (limit / 8).clamp(LOOKS.0, LOOKS.1);
    loop {
        tokio::time::sleep(pause).await;
        let Ok(loaded) = app.model_or_share() else { continue };
        if loaded.engine.status().in_step.is_some_and(|taken| taken > limit) {
            return format!(
                "the {} has not come back from a step for {} s: it counts as stuck (--watchdog), and the server ends",
                loaded.receipt.placement.device,
                limit.as_secs_f64()
            );
        }
    }
}
