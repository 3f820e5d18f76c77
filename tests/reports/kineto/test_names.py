"""Kernels by their names, as public traces have them: what communicates, and what kind each of the others is."""

from __future__ import annotations

import pytest

from reports.kineto.names import collective_kind, communicates, kernel_kind, operator_kind, verb_around

SENT = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "all_to_all_single",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter_tensor",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "all_gather_into_tensor",
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "broadcast",
    "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymkDevWorkArgs4K)": "all_reduce",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "collective",
    "void multimem_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16*, unsigned long)": "all_reduce",
    "void c10d::(anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>()": "all_reduce",
    "void two_shot_all_reduce_kernel<c10::BFloat16, 16, 8, 8>(c10::BFloat16**, unsigned long)": "all_reduce",
    "void one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, 8, true>(c10::BFloat16**)": "all_reduce",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)": "all_reduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()": "all_reduce",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)": "all_to_all_single",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*)": "all_to_all_single",
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, float*)": "all_to_all_single",
    "void deep_ep::intranode::notify_dispatch<8>(int const*, int*)": "all_to_all_single",
    "void deep_ep::intranode::barrier<8>(int**, int)": "barrier",
    "void nvshmemi_alltoall_on_stream_kernel<unsigned char>(int)": "all_to_all_single",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)": "collective",
}
COMPUTED = {
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t"
    ">>(pytorch_flash::Flash_fwd_params)": "attention",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::bfloat16_t>()": "attention",
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<cutlass::gemm::GemmShape>>>()": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)":
        "attention",
    "fmha_cutlassB_f16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::half_t>)":
        "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0":
        "attention",
    "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*)": "attention",
    "triton_tem_fused_flex_attention_0": "attention",
    "_attn_fwd": "attention",
    "triton_poi_fused__scaled_dot_product_flash_attention_clone_3": "elementwise",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)": "other",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>()": "gemm",
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": "gemm",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>":
        "optimizer",
}  # fmt: skip


@pytest.mark.parametrize(("name", "verb"), SENT.items())
def test_kernels_that_communicate_are_their_verb(name, verb):
    assert communicates(name)
    assert collective_kind(name) == verb


@pytest.mark.parametrize(("name", "kind"), COMPUTED.items())
def test_other_kernels_are_computation_of_their_kind(name, kind):
    assert not communicates(name)
    assert kernel_kind(name) == kind


@pytest.mark.parametrize(
    "name",
    ["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
     "aten::_efficient_attention_forward", "ScaledDotProductFlashAttentionBackward0"],
)  # fmt: skip
def test_operators_of_attention_are_no_products(name):
    assert operator_kind(name) in ("attention", "other")
    if name.startswith("aten"):
        assert operator_kind(name) == "attention"


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("nccl:all_reduce", "all_reduce"),
        ("nccl:_all_to_all_base", "all_to_all_single"),
        ("nccl:send 0->1", "send"),
        ("nccl:coalesced", ""),
        ("c10d::allreduce_", "all_reduce"),
        ("_c10d_functional::reduce_scatter_tensor", "reduce_scatter_tensor"),
        ("## all_reduce of bucket 3 ##", "all_reduce"),
        ("reduce_loss", ""),
        ("gather inputs", ""),
        ("forward", ""),
    ],
)
def test_ranges_around_a_launch_give_a_verb_only_by_a_collectives_whole_name(name, verb):
    assert verb_around(name) == verb


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_128x64_tn", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_relu>(int)", "gemm"),
        ("Cijk_Ailk_Bjlk_SB_MT64x16", "gemm"),
        ("void at::native::reduce_kernel<512, 1, at::native::MeanOps<float>>(int)", "reduction"),
        ("void at::native::elementwise_kernel<at::native::softmax>(int)", "elementwise"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<float>(int)", "optimizer"),
        ("void split_embedding_backward_codegen_adagrad_kernel_cta_per_row_1<float>", "embedding_update"),
        ("void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float>", "embedding_lookup"),
        ("void fbgemm_gpu::_block_bucketize_sparse_features_cuda_kernel2<false>(int)", "bucketize"),
        ("void fbgemm_gpu::linearize_index_kernel<long>(int)", "other"),
        ("void permute_pooled_embs_kernel<float>(float const*)", "permute"),
        ("void geqr2_smem<float, float, 8, 6>(int)", "qr"),
        ("triton_per_fused_native_layer_norm_3", "reduction"),
    ],
)  # fmt: skip
def test_a_kernels_name_tells_its_kind(name, kind):
    assert kernel_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "gemm"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "gemm"),
        ("autograd::engine::evaluate_function: EmbeddingBagBackward0", "embedding_update"),
        ("aten::normal_", "other"),
        ("aten::add_", "elementwise"),
        ("aten::linalg_qr", "qr"),
    ],
)
def test_an_operators_name_tells_its_kind(name, kind):
    assert operator_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("allreduce_coalesced", "all_reduce_coalesced"), ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather_into_tensor"),
        ("_reduce_scatter_base", "reduce_scatter_tensor"), ("all_to_allv", "all_to_all_single"), ("send", "send"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter_tensor"), ("broadcast", "broadcast"),
        ("ncclDevKernel_SendRecv", "all_to_all_single"), ("ncclDevKernel_Generic", "collective"),
    ],
)  # fmt: skip
def test_a_collectives_name_tells_its_verb(name, verb):
    assert collective_kind(name) == verb
