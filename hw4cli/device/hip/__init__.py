"""AMD's GPUs: kernels compiled by HIP's compiler, which needs no GPU, and what their code objects say of themselves."""
