"""The oracle of gradients: dQ, dK and dV in float64, by the formulas, with whole matrices of scores."""

import sys
from typing import Any


def exact_gradients(
    do: Any, q: Any, k: Any, v: Any, *, causal: bool = False, offset: int = 0, scale: float | None = None
) -> tuple[Any, Any, Any]:
    """dQ, dK and dV of attention, in float64, where O has the gradient dO.

    The arrays are NumPy's or CuPy's (which then needs cuBLAS): do and q (batch, heads, Nq, d), k and v (batch,
    kv_heads, Nk, d); heads is a multiple of kv_heads. `causal`: row i sees the keys 0 to i + offset. Scores (batch,
    heads, Nq, Nk) are held at once. By the chain rule: dV = Pᵀ dO; dP = dO Vᵀ; dS = P (dP - the row's sum of P dP);
    dQ = scale dS K; dK = scale dSᵀ Q (Dao et al., FlashAttention, 2022, appendix B.2).
    """
    xp = sys.modules[type(q).__module__.split(".")[0]]
    group = q.shape[1] // k.shape[1]
    scale = q.shape[3] ** -0.5 if scale is None else scale
    do, q = do.astype("float64"), q.astype("float64")
    keys, values = (x.astype("float64").repeat(group, axis=1) for x in (k, v))
    p = q @ keys.swapaxes(2, 3) * scale
    if causal:
        p[..., xp.arange(k.shape[2]) > xp.arange(q.shape[2])[:, None] + offset] = -xp.inf
    top = p.max(axis=3, keepdims=True)
    p = xp.exp(p - xp.where(top == -xp.inf, 0, top))  # a row that sees no key has no weights
    total = p.sum(axis=3, keepdims=True)
    total[total == 0] = 1
    p /= total
    dp = do @ values.swapaxes(2, 3)
    ds = p * (dp - (p * dp).sum(axis=3, keepdims=True))
    dq = ds @ keys * scale
    by_head = (*k.shape[:2], group, *k.shape[2:])
    dk = (ds.swapaxes(2, 3) @ q * scale).reshape(by_head).sum(axis=2)
    dv = (p.swapaxes(2, 3) @ do).reshape(by_head).sum(axis=2)
    return dq, dk, dv
