//! Refusals in the words of providers, and what requests do without after them.

use playhouse_protocol::capability::{BudgetRange, ReasoningForm, RequestRules};
use playhouse_protocol::chat::ToolSpec;
use serde_json::json;

use super::*;
use crate::{ToolChoice, Toolset, Transcript};

fn head() -> Head {
    let parameters = json!({"type": "object", "properties": {"format": {"type": "string", "pattern": "^a"}},
        "additionalProperties": false});
    Head {
        model: "m".into(),
        system: "Be brief.".into(),
        max_output: 64_000,
        temperature: Some(0.5),
        top_p: Some(0.9),
        reasons: true,
        reasoning: Some(Reasoning::Effort(Effort::High)),
        cache_key: Some("ses".into()),
        tools: vec![ToolSpec { name: "read".into(), description: "Reads.".into(), parameters }].into(),
        ..Head::default()
    }
}

#[test]
fn a_window_is_learned_from_the_words_of_providers() {
    for (message, tokens) in [
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
            Some(4_096),
        ),
        ("prompt is too long: 210000 tokens > 200000 maximum", Some(200_000)),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000, decrease",
            Some(200_000),
        ),
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            Some(1_048_576),
        ),
        (
            "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
            Some(131_072),
        ),
        ("the request exceeds the available context size (8,192 tokens), try increasing it", Some(8_192)),
        (
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
            Some(262_144),
        ),
        ("Your input exceeds the context window of this model.", None),
        ("maximum context length is 12 tokens", None),
        ("maximum context length is 2000000 tokens", None),
    ] {
        let findings = Findings::default();
        let error = ErrorInfo { code: ErrorCode::ContextOverflow, ..refusal(message) };
        let learned = findings.learn_window(&model(), &error, 2_000_000);
        assert_eq!(learned.map(|learned| learned.finding), tokens.map(Finding::Window), "{message}");
        assert_eq!(findings.of(&model()).window(), tokens, "{message}");
    }
    let findings = Findings::default();
    let other = ErrorInfo { code: ErrorCode::BadRequest, ..refusal("maximum context length is 4096") };
    assert!(findings.learn_window(&model(), &other, 9_000).is_none());
}

#[test]
fn refusals_of_reasoning_are_told_from_others() {
    for (message, refused) in [
        (
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
            true,
        ),
        ("messages.3.content.0: Invalid `data` in `redacted_thinking` block", true),
        ("messages.1.content.0: `thinking` or `redacted_thinking` blocks cannot be modified.", true),
        ("The encrypted content for item rs_1 could not be verified. (invalid_encrypted_content)", true),
        ("Corrupted thought signature.", true),
        ("Invalid thought signature.", true),
        ("\"thinking.type.enabled\" is not supported for this model.", false),
        ("messages.1.content.0: text content blocks must be non-empty", false),
    ] {
        assert_eq!(refuses_reasoning(&refusal(message)), refused, "{message}");
    }
    let later = ErrorInfo::new(ErrorCode::ProviderUnavailable, "Invalid thought signature.").with_status(500);
    assert!(!refuses_reasoning(&later));
}

#[test]
fn a_level_that_a_model_lacks_is_mapped_and_told() {
    let mut head = head();
    assert_eq!(head.mapped_effort(DialectKind::OpenaiChat), None);
    head.reasoning_form = Some(ReasoningForm { efforts: vec![Effort::Low, Effort::Medium], budget: None });
    assert_eq!(head.mapped_effort(DialectKind::OpenaiChat), Some((Effort::High, Effort::Medium)));
    head.reasoning = Some(Reasoning::Effort(Effort::Low));
    assert_eq!(head.mapped_effort(DialectKind::OpenaiChat), None);
    head.reasoning = Some(Reasoning::Effort(Effort::None));
    assert_eq!(head.mapped_effort(DialectKind::OpenaiChat), Some((Effort::None, Effort::Low)));
    assert_eq!(head.mapped_effort(DialectKind::Anthropic), None, "it is turned off");
    let findings = Findings::default();
    let first = |effort| findings.is_first_mapping(&model(), effort);
    assert_eq!([first(Effort::High), first(Effort::High), first(Effort::Max)], [true, false, true]);
}

/// The error of a 400 with this message, as the client makes it. `[name]` at its end stands for the member `param`.
fn refusal(message: &str) -> ErrorInfo {
    let param = message.strip_suffix(']').and_then(|text| text.rsplit_once(" [")).map(|(_, param)| param);
    let body =
        json!({"error": {"message": message, "type": "invalid_request_error", "param": param}}).to_string();
    let endpoint = crate::Endpoint::new("deep-thinking", DialectKind::OpenaiChat, "http://a");
    let refusal = crate::failure::Refusal {
        endpoint: &endpoint,
        // Words and numbers of names say nothing.
        model: "m-reasoning-2025-08-07",
        address: "http://a/v1/chat/completions",
        status: 400,
        headers: &[],
        body: body.as_bytes(),
    };
    refusal.error()
}

fn model() -> ModelRef {
    ModelRef::new("acme", "m")
}

#[test]
fn a_refusal_in_the_words_of_providers_names_what_to_leave_out() {
    use DialectKind::{Anthropic, Gemini, OpenaiChat, OpenaiResponses};
    for (dialect, message, finding) in [
        (
            OpenaiChat,
            "Unsupported parameter: 'temperature' is not supported with this model. (invalid_request_error)",
            Some(Finding::Without(Parameter::Temperature)),
        ),
        (
            OpenaiChat,
            "Function tools with reasoning_effort are not supported for gpt-5.5 in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
            Some(Finding::Without(Parameter::Reasoning)),
        ),
        (
            OpenaiChat,
            "body.stream_options: Extra inputs are not permitted",
            Some(Finding::Without(Parameter::StreamOptions)),
        ),
        (OpenaiChat, "wrong value [prompt_cache_key]", Some(Finding::Without(Parameter::CacheKey))),
        (
            OpenaiChat,
            "Unrecognized request argument supplied: tool_choice",
            Some(Finding::Without(Parameter::ToolChoice)),
        ),
        (
            OpenaiChat,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            Some(Finding::OtherLimitField(OutputLimitField::MaxCompletionTokens)),
        ),
        (
            OpenaiChat,
            "max_tokens is too large: 64000. This model supports at most 16384 completion tokens",
            Some(Finding::MostOutput(16_384)),
        ),
        (
            OpenaiChat,
            "Invalid schema for function 'read': 'pattern' is not permitted",
            Some(Finding::WithoutKeyword("pattern")),
        ),
        (OpenaiChat, "Invalid schema for function 'read': 'allOf' is not permitted", None),
        (OpenaiResponses, "Unsupported parameter: 'top_p' [top_p]", Some(Finding::Without(Parameter::TopP))),
        (OpenaiResponses, "Unknown parameter: 'tools[0].strict'.", Some(Finding::Without(Parameter::Strict))),
        (
            OpenaiResponses,
            "Unsupported value: 'reasoning.encrypted_content' in include",
            Some(Finding::Without(Parameter::Include)),
        ),
        (OpenaiResponses, "input[3].content: unsupported reasoning item", None),
        (
            Anthropic,
            "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior.",
            Some(Finding::Adaptive),
        ),
        (Anthropic, "thinking: Extra inputs are not permitted", Some(Finding::Without(Parameter::Reasoning))),
        (
            Anthropic,
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
            None,
        ),
        (
            Anthropic,
            "messages.0.content.0.text.cache_control: Extra inputs are not permitted",
            Some(Finding::Without(Parameter::CacheControl)),
        ),
        (
            Anthropic,
            "max_tokens: 64000 > 32,000, which is the maximum allowed number of output tokens for m",
            Some(Finding::MostOutput(32_000)),
        ),
        (
            Gemini,
            "Unknown name \"thinkingConfig\" at 'generation_config': Cannot find field.",
            Some(Finding::Without(Parameter::Reasoning)),
        ),
        (
            OpenaiChat,
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            Some(Finding::OtherLimitField(OutputLimitField::MaxCompletionTokens)),
        ),
        (
            OpenaiChat,
            "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
            Some(Finding::MostOutput(8_192)),
        ),
        (
            OpenaiChat,
            "`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens`",
            Some(Finding::MostOutput(32_768)),
        ),
        (OpenaiChat, "`reasoning_content` in the thinking mode must be passed back to the API.", None),
        (OpenaiChat, "the thinking of this model is strict, and includes much reasoning effort", None),
        (OpenaiChat, "Unsupported parameter: reasoning", Some(Finding::Without(Parameter::Reasoning))),
        (
            OpenaiResponses,
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
            None,
        ),
        (OpenaiResponses, "Invalid schema for function 'grep': In context=('properties','include')", None),
        (OpenaiChat, "the messages are wrong: tools must follow calls", None),
        (OpenaiChat, "no more was said", None),
    ] {
        let found =
            Findings::default().learn(&model(), dialect, &head(), &SentTools::of(&head()), &refusal(message));
        assert_eq!(found.map(|learned| learned.finding), finding, "{dialect:?}: {message}");
    }
}

#[test]
fn a_refusal_of_deferred_tools_counts_where_there_were_any() {
    let plain = head();
    let deferred = plain.tools.iter().map(|tool| tool.name.clone()).collect();
    let rules = RequestRules { tool_search: true, ..RequestRules::default() };
    let head = Head { tools: Toolset::deferring(plain.tools.to_vec(), deferred), rules, ..head() };
    for (dialect, message) in [
        (DialectKind::Anthropic, "tools.7.custom.defer_loading: Extra inputs are not permitted"),
        (
            DialectKind::Anthropic,
            "tools.8: Input tag 'tool_search_tool_regex_20251119' found using 'type' does not match any of the expected tags",
        ),
        (DialectKind::OpenaiResponses, "Tool 'tool_search' is not supported with m. [tools]"),
        (
            DialectKind::OpenaiResponses,
            "Unknown parameter: 'tools[3].defer_loading'. [tools[3].defer_loading]",
        ),
    ] {
        let learn = |head: &Head| {
            Findings::default().learn(&model(), dialect, head, &SentTools::of(head), &refusal(message))
        };
        let wanted = Finding::Without(Parameter::DeferredTools);
        assert_eq!(learn(&head).map(|learned| learned.finding), Some(wanted.clone()), "{message}");
        assert_eq!(learn(&plain), None, "{message}");
        assert!(!head.clone().adjusted(Adjustments([wanted].into())).rules.tool_search);
    }
}

#[test]
fn what_did_not_help_is_taken_back() {
    let findings = Findings::default();
    let learn = |message| {
        let learned = findings.learn(
            &model(),
            DialectKind::OpenaiChat,
            &head(),
            &SentTools::of(&head()),
            &refusal(message),
        );
        learned.unwrap().finding
    };
    let kept = learn("Unsupported parameter: 'temperature'");
    let taken = learn("Unsupported parameter: 'top_p'");
    findings.forget(&model(), [taken]);
    assert_eq!(findings.of(&model()).iter().collect::<Vec<_>>(), [&kept]);
}

#[test]
fn only_a_refused_request_teaches() {
    let message = "Unsupported parameter: 'temperature'";
    let learn = |error: ErrorInfo| {
        Findings::default()
            .learn(&model(), DialectKind::OpenaiChat, &head(), &SentTools::of(&head()), &error)
            .is_some()
    };
    assert!(learn(refusal(message)) && learn(refusal(message).with_status(422)));
    assert!(!learn(refusal(message).with_status(404)));
    assert!(!learn(ErrorInfo { code: ErrorCode::ContextOverflow, ..refusal(message) }));
}

/// What is found when a server says the same of each request that follows from the finding before.
fn until_final(dialect: DialectKind, head: &Head, message: &str) -> Vec<Finding> {
    let findings = Findings::default();
    let mut found = Vec::new();
    for _ in 0..10 {
        let adjusted = head.clone().adjusted(findings.of(&model()));
        match findings.learn(&model(), dialect, &adjusted, &SentTools::of(&adjusted), &refusal(message)) {
            Some(learned) => found.push(learned.finding),
            None => return found,
        }
    }
    panic!("it never ends: {found:?}")
}

#[test]
fn the_same_refusal_again_is_final_or_has_one_more_answer() {
    let chat = |message| until_final(DialectKind::OpenaiChat, &head(), message);
    assert_eq!(chat("temperature is not supported"), [Finding::Without(Parameter::Temperature)]);
    // Left out first; a server that refuses tools even then wants to be told so.
    let effort = chat("tools are not supported with reasoning_effort");
    assert_eq!(effort, [Finding::Without(Parameter::Reasoning), Finding::NoReasoning]);
    // A request never leaves without a limit of its output.
    let limit = chat("unknown argument max_tokens, and no max_completion_tokens either");
    assert_eq!(limit, [Finding::OtherLimitField(OutputLimitField::MaxCompletionTokens)]);
    let claude = "thinking.type.enabled is not supported, use thinking.type.adaptive";
    let form = Some(ReasoningForm { efforts: vec![Effort::High], budget: Some(BudgetRange::default()) });
    let claude = until_final(DialectKind::Anthropic, &Head { reasoning_form: form, ..head() }, claude);
    assert_eq!(claude, [Finding::Adaptive, Finding::Without(Parameter::Reasoning)]);
}

fn sent(dialect: DialectKind, findings: &[Finding]) -> Value {
    let head = head().adjusted(Adjustments(findings.iter().cloned().collect()));
    let mut transcript = Transcript::new(dialect, &head);
    transcript.push(
        &playhouse_protocol::chat::ChatMessage::User {
            parts: vec![playhouse_protocol::chat::UserPart::Text { text: "hi".into() }],
        },
        &|_| None,
    );
    serde_json::from_slice(&transcript.request(ToolChoice::None)).unwrap()
}

#[test]
fn requests_go_without_what_was_refused() {
    use DialectKind::{Anthropic, OpenaiChat, OpenaiResponses};
    for (dialect, parameter, pointer) in [
        (OpenaiChat, Parameter::Temperature, "/temperature"),
        (OpenaiChat, Parameter::TopP, "/top_p"),
        (OpenaiChat, Parameter::StreamOptions, "/stream_options"),
        (OpenaiChat, Parameter::CacheKey, "/prompt_cache_key"),
        (OpenaiChat, Parameter::ToolChoice, "/tool_choice"),
        (OpenaiChat, Parameter::Reasoning, "/reasoning_effort"),
        (OpenaiResponses, Parameter::Include, "/include"),
        (OpenaiResponses, Parameter::Strict, "/tools/0/strict"),
        (OpenaiResponses, Parameter::Reasoning, "/reasoning"),
        (Anthropic, Parameter::CacheControl, "/system/0/cache_control"),
        (Anthropic, Parameter::CacheControl, "/tools/0/cache_control"),
        (Anthropic, Parameter::CacheControl, "/messages/0/content/0/cache_control"),
        (Anthropic, Parameter::Reasoning, "/thinking"),
    ] {
        assert!(sent(dialect, &[]).pointer(pointer).is_some(), "{dialect:?} {pointer}");
        assert!(
            sent(dialect, &[Finding::Without(parameter)]).pointer(pointer).is_none(),
            "{dialect:?} {pointer}"
        );
    }
    let limit = Finding::OtherLimitField(OutputLimitField::MaxCompletionTokens);
    let request = sent(OpenaiChat, &[limit, Finding::MostOutput(100), Finding::NoReasoning]);
    assert_eq!((&request["max_completion_tokens"], &request["max_tokens"]), (&json!(100), &Value::Null));
    assert_eq!(request["reasoning_effort"], "none");
    let request = sent(OpenaiChat, &[Finding::WithoutKeyword("pattern"), Finding::WithoutKeyword("format")]);
    let parameters = &request["tools"][0]["function"]["parameters"];
    let property = json!({"type": "string"});
    assert_eq!(parameters["properties"]["format"], property, "a property of that name stays");
}
