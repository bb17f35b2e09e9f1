"""Small settings of rivals, beside those of `support.graphs`."""

SMALL_RIVALS = {
    **{
        "sfgc.steps": 3,
        "sfgc.experts": 2,
        "sfgc.latest-start": 5,
        "sfgc.span": 5,
        "sfgc.unroll": 3,
    },
    **{"fedgvd.steps": 3, "fedgvd.teacher-steps": 5},
    **{"fedsage.maker-dim": 16, "fedsage.latent-dim": 8, "fedsage.steps": 10},
    **{"fedsage.exchanges": 2, "fedsage.learning-rate": 0.02},
    **{"self-training.start-round": 2, "self-training.confidence": 0.35},
    **{"llm4rgnn.predictor-width": 16, "llm4rgnn.predictor-epochs": 5},
    **{"llm4rgnn.pairs": 40, "llm4rgnn.negatives": 60},
    **{"llm4fgl.predictor-rounds": 1, "llm4fgl.reflect-every": 1},
    **{"llm4fgl.reflections": 3, "llm4fgl.threshold": 0.5},
}
